"""The types of values in a site spec; each refuses with a text that says what it must be and what it got."""

from __future__ import annotations

import re
import signal
from collections.abc import Hashable, Iterable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from webserv_rt.toml_lines import KeyPath
from webserv_rt.toml_model import quote, refuse

ItemT = TypeVar("ItemT")

_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_MAX_SECONDS = 86_400
_MAX_UNIX_PATH_BYTES = 107  # sockaddr_un.sun_path without its terminating NUL


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, got {quote(value)}")
    if "\0" in value:
        raise ValueError("must not contain NUL characters")
    return value


def _whole(value: object, low: int, high: int, noun: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"must be {noun} ({low}..{high}), got {quote(value)}")
    return value


def _port(value: object) -> int:
    return _whole(value, 1, 65535, "a port")


def _http_status(value: object) -> int:
    return _whole(value, 100, 599, "an HTTP status")


def _duration(value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _MAX_SECONDS:
        raise ValueError(f"must be seconds (more than 0, at most {_MAX_SECONDS}), got {quote(value)}")
    return float(value)


def _site_name(value: object) -> str:
    name = _text(value)
    if not re.fullmatch(_DNS_LABEL, name):
        raise ValueError(f'must be lower-case letters, digits and "-" (at most 63), got {quote(name)}')
    return name


def _file_name(value: object) -> str:
    name = _text(value)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise ValueError(
            'must be letters, digits, ".", "_" and "-" (at most 64), a letter or digit first: '
            f"it becomes a file name; got {quote(name)}"
        )
    return name


def _host_name(value: object) -> str:
    host = _text(value).lower()
    labels = host.split(".")
    good = len(host) <= 253 and all(re.fullmatch(_DNS_LABEL, label) for label in labels)
    if not good or labels[-1].isdigit():
        raise ValueError(f"must be a DNS name without scheme, port or final dot, got {quote(value)}")
    return host


def _user_name(value: object) -> str:
    user = _text(value)
    if not re.fullmatch(r"[^\s:,/]+(?::[^\s:,/]+)?", user):
        raise ValueError(f'must be "USER" or "USER:GROUP", names or numbers, got {quote(user)}')
    return user


def _environment_name(value: object) -> str:
    name = _text(value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f'must be named with letters, digits and "_", no digit first, got {quote(name)}')
    return name


def _absolute_path(value: object) -> str:
    path = _text(value)
    _refuse_odd_path(path, path)
    return path


def _refuse_odd_path(path: str, given: str) -> None:
    if not path.startswith("/"):
        raise ValueError(f"must be an absolute path, got {quote(given)}")
    if path != "/" and any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise ValueError(f'must be a path without ".", "..", "//" and final "/", got {quote(given)}')


def _socket_path(value: object) -> str:
    path = _absolute_path(value)
    if len(path.encode()) > _MAX_UNIX_PATH_BYTES:
        raise ValueError(f"must be at most {_MAX_UNIX_PATH_BYTES} bytes long (a limit of unix sockets)")
    return path


def _inner_path(value: object) -> str:
    path = _absolute_path(value)
    if path == "/" or path.split("/")[1] in ("proc", "sys", "dev"):
        raise ValueError(f"must lie below / and outside /proc, /sys and /dev, got {quote(path)}")
    return path


def _host_path(value: object) -> str:
    source = _text(value)
    _refuse_odd_path(re.sub(r"^\{[a-z_]+\}", "/placeholder", source), source)
    return source


def _url_path(value: object) -> str:
    path = _text(value)
    # It goes into a request line as it is: a blank or a line break would end or forge it.
    if not re.fullmatch(r"/[!-\"$-~]*", path):
        raise ValueError(
            f'must start with "/"; blanks, "#" and non-ASCII are percent-encoded; got {quote(path)}'
        )
    return path


def _signal_name(value: object) -> str:
    name = _text(value).removeprefix("SIG")
    signal_number(name)
    return name


def _egress(value: object) -> str:
    if value != "none":
        raise ValueError(f'must be "none": nothing else is supported yet, got {quote(value)}')
    return "none"


def _command(arguments: tuple[str, ...]) -> tuple[str, ...]:
    if not arguments or not arguments[0]:
        raise ValueError('must name a program first, as in ["/usr/sbin/nginx", "-g", "daemon off;"]')
    return arguments


def signal_number(name: str) -> int:
    """Return the number of a signal named without SIG: TERM, QUIT, RTMIN+3, or a number in digits."""
    number = _signal_numbers().get(name)
    if number is None:
        raise ValueError(f'must be the name of a signal, such as "TERM" or "QUIT", got {quote(name)}')
    return number


def _signal_numbers() -> dict[str, int]:
    numbers = {known.name.removeprefix("SIG"): int(known) for known in signal.Signals}
    real_time = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
    numbers.update({f"RTMIN+{number - signal.SIGRTMIN}": number for number in real_time})
    return numbers | {str(int(number)): int(number) for number in signal.valid_signals()}


def repeated(items: Iterable[Hashable]) -> dict[int, int]:
    """Return, for the index of each item that came before, the index where it first stood."""
    first: dict[Hashable, int] = {}
    return {index: first[item] for index, item in enumerate(items) if first.setdefault(item, index) != index}


def _distinct(items: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    if not items:
        raise ValueError("must not be empty")
    complaints: dict[KeyPath, str] = {}
    for index, first in repeated(items).items():
        complaints[(index,)] = f"{quote(items[index])} is listed already, as [{first}]"
    refuse(complaints)
    return items


Text = Annotated[str, BeforeValidator(_text)]
Port = Annotated[int, BeforeValidator(_port)]
HttpStatus = Annotated[int, BeforeValidator(_http_status)]
Seconds = Annotated[float, BeforeValidator(_duration)]
SiteName = Annotated[str, BeforeValidator(_site_name)]
FileName = Annotated[str, BeforeValidator(_file_name)]
HostName = Annotated[str, BeforeValidator(_host_name)]
UserName = Annotated[str, BeforeValidator(_user_name)]
AbsolutePath = Annotated[str, BeforeValidator(_absolute_path)]
SocketPath = Annotated[str, BeforeValidator(_socket_path)]
InnerPath = Annotated[str, BeforeValidator(_inner_path)]
HostPath = Annotated[str, BeforeValidator(_host_path)]
UrlPath = Annotated[str, BeforeValidator(_url_path)]
SignalName = Annotated[str, BeforeValidator(_signal_name)]
Egress = Annotated[str, BeforeValidator(_egress)]
Environment = dict[Annotated[str, BeforeValidator(_environment_name)], Text]

# TOML arrays come as lists, which strict tuples would refuse; the elements stay strict.
Command = Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(_command)]
Ports = Annotated[tuple[Port, ...], Field(strict=False), AfterValidator(_distinct)]
Hosts = Annotated[tuple[HostName, ...], Field(strict=False), AfterValidator(_distinct)]
