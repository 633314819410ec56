"""How an image says that it wants to run: the `config` object of OCI and docker image configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from webserv_rt.storage.errors import SourceDamaged

_T = TypeVar("_T")


@dataclass(frozen=True)
class ImageConfig:
    """What a site spec falls back on. None and empty mean that the image says nothing.

    `ports` are those exposed for TCP, ascending; `stop_signal` is as the image has it ("SIGQUIT", "3").
    """

    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...] | None
    environment: Mapping[str, str]
    directory: str
    user: str
    ports: tuple[int, ...]
    stop_signal: str

    @classmethod
    def from_oci(cls, config: object) -> ImageConfig:
        """Return what CONFIG, the `config` object of an image configuration, says. Raises `SourceDamaged`."""
        if config is None:
            config = {}
        if not isinstance(config, dict):
            raise SourceDamaged("the image's configuration: 'config' is no object")
        return cls(
            entrypoint=_field(config, "Entrypoint", _words, None),
            command=_field(config, "Cmd", _words, None),
            environment=_field(config, "Env", _environment, {}),
            directory=_field(config, "WorkingDir", _text, ""),
            user=_field(config, "User", _text, ""),
            ports=_field(config, "ExposedPorts", _tcp_ports, ()),
            stop_signal=_field(config, "StopSignal", _text, ""),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as base.json has it."""
        return {
            "entrypoint": list(self.entrypoint) if self.entrypoint is not None else None,
            "command": list(self.command) if self.command is not None else None,
            "environment": dict(self.environment),
            "directory": self.directory,
            "user": self.user,
            "ports": list(self.ports),
            "stop_signal": self.stop_signal,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ImageConfig:
        """Return the configuration that `to_json` gave as VALUE. Raises KeyError or TypeError."""
        return cls(
            entrypoint=tuple(value["entrypoint"]) if value["entrypoint"] is not None else None,
            command=tuple(value["command"]) if value["command"] is not None else None,
            environment=dict(value["environment"]),
            directory=value["directory"],
            user=value["user"],
            ports=tuple(value["ports"]),
            stop_signal=value["stop_signal"],
        )


def _field(config: dict[str, Any], name: str, convert: Callable[[Any], _T], default: _T) -> _T:
    value = config.get(name)
    if value is None:
        return default
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        raise SourceDamaged(f"the image's configuration: {name} is {value!r}: {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it must be a string")
    return value


def _words(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        raise TypeError("it must be a list of strings")
    return tuple(_text(word) for word in value) or None


def _environment(value: Any) -> Mapping[str, str]:
    environment = {}
    for word in _words(value) or ():
        name, equals, setting = word.partition("=")
        if not name or not equals:
            raise ValueError(f"{word!r} is not NAME=VALUE")
        environment[name] = setting
    return environment


def _tcp_ports(value: Any) -> tuple[int, ...]:
    """Return the numbers of "80/tcp", "443" and "8000-8003/tcp"."""
    ports: set[int] = set()
    for port in value:
        numbers, _, protocol = _text(port).partition("/")
        first, _, last = numbers.partition("-")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= 65535:
            raise ValueError(f"{port!r} is no port")
        if protocol in ("", "tcp"):
            ports.update(range(low, high + 1))
    return tuple(sorted(ports))
