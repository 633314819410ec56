"""What an instance is started from: the site spec, completed from the image where it is silent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field

from webserv_rt.site import Data, Entrypoint, Mount, Ready, SiteSpec, Wait, Warm
from webserv_rt.site_fields import signal_number
from webserv_rt.storage.image_config import ImageConfig
from webserv_rt.toml_model import Problem, SpecError, Table

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ResolvedService(Table):
    """One program for pid 1 to start; `command[0]` without a slash is searched in environment["PATH"]."""

    name: str
    command: Annotated[tuple[str, ...], Field(strict=False)]
    user: str
    directory: str
    environment: dict[str, str]
    run: Literal["always", "once"]
    wait: Wait | None


class ResolvedSite(Table):
    """A site with nothing left open; kept with the base as JSON.

    With `is_pid1` the one service in `services` is the instance's pid 1 itself.
    """

    name: str
    profile: str
    hosts: Annotated[tuple[str, ...], Field(strict=False)]
    port: int
    ports: Annotated[tuple[int, ...], Field(strict=False)]
    egress: str
    is_pid1: bool
    services: Annotated[tuple[ResolvedService, ...], Field(strict=False)]
    ready: Ready
    warm: Annotated[tuple[Warm, ...], Field(strict=False)]
    data: Annotated[tuple[Data, ...], Field(strict=False)]
    mounts: Annotated[tuple[Mount, ...], Field(strict=False)]
    stop_signal: int
    stop_timeout_s: float


def resolve(
    spec: SiteSpec, image: ImageConfig | None = None, placeholders: Mapping[str, str] | None = None
) -> ResolvedSite:
    """Return SPEC completed from the configuration of its image; where both speak, the spec wins.

    PLACEHOLDERS gives what stands for {NAME} at the start of a mount's source. Raises `SpecError` when
    nothing says how to run the site or on which port it listens, or a placeholder is not known.
    """
    complaints: dict[str, str] = {}
    services = _services(spec, image, complaints)
    port = _port(spec, image, complaints)
    stop_signal = _stop_signal(spec, image, complaints)
    mounts = _mounts(spec.mounts, placeholders or {}, complaints)
    if complaints:
        raise SpecError(Problem(f"site {spec.name}", key, message) for key, message in complaints.items())
    return ResolvedSite(
        name=spec.name,
        profile=spec.profile,
        hosts=spec.hosts or (f"{spec.name}.test",),
        port=port,
        ports=spec.ports or (port,),
        egress=spec.egress,
        is_pid1=spec.entrypoint is not None and spec.entrypoint.pid1,
        services=services,
        ready=spec.ready or Ready(tcp=port),
        warm=spec.warm,
        data=spec.data,
        mounts=mounts,
        stop_signal=stop_signal,
        stop_timeout_s=spec.stop.timeout_s,
    )


def _services(
    spec: SiteSpec, image: ImageConfig | None, complaints: dict[str, str]
) -> tuple[ResolvedService, ...]:
    environment = {"PATH": DEFAULT_PATH} | dict(image.environment if image else {})
    directory = f"/{image.directory.lstrip('/')}" if image else "/"
    if not spec.services:
        return (_entrypoint(spec.entrypoint or Entrypoint(), image, environment, directory, complaints),)
    return tuple(
        ResolvedService(
            name=service.name,
            command=service.command,
            user=service.user,
            directory=service.directory or directory,
            environment=environment | service.environment,
            run=service.run,
            wait=service.wait,
        )
        for service in spec.services
    )


def _entrypoint(
    entrypoint: Entrypoint,
    image: ImageConfig | None,
    environment: dict[str, str],
    directory: str,
    complaints: dict[str, str],
) -> ResolvedService:
    command = entrypoint.command or _image_command(image)
    if not command:
        silent = "the image has neither Entrypoint nor Cmd" if image else "there is no image configuration"
        complaints["services"] = f"nothing tells how to run it ({silent}); add them, or entrypoint.command"
    return ResolvedService(
        name="entrypoint",
        command=command,
        user=entrypoint.user or (image.user if image else "") or "root",
        directory=entrypoint.directory or directory,
        environment=environment | entrypoint.environment,
        run="always",
        wait=None,
    )


def _image_command(image: ImageConfig | None) -> tuple[str, ...]:
    return (*(image.entrypoint or ()), *(image.command or ())) if image else ()


def _port(spec: SiteSpec, image: ImageConfig | None, complaints: dict[str, str]) -> int:
    candidates = spec.ports or (image.ports if image else ())
    if spec.port is not None:
        return spec.port
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        complaints["port"] = (
            f"say which of {', '.join(map(str, candidates))} is the site's own: add port = ..."
        )
    else:
        complaints["port"] = "nothing tells on which port the site listens: add port = ..."
    return 0


def _stop_signal(spec: SiteSpec, image: ImageConfig | None, complaints: dict[str, str]) -> int:
    name = spec.stop.signal or (image.stop_signal if image else "") or "TERM"
    try:
        return signal_number(name.removeprefix("SIG"))
    except ValueError as error:
        complaints["stop.signal"] = f"the image's StopSignal {error}"
        return 0


def _mounts(
    mounts: Iterable[Mount], placeholders: Mapping[str, str], complaints: dict[str, str]
) -> tuple[Mount, ...]:
    resolved = []
    for index, mount in enumerate(mounts):
        match = re.match(r"\{([a-z_]+)\}", mount.source)
        if match is None:
            resolved.append(mount)
        elif match[1] in placeholders:
            source = placeholders[match[1]].rstrip("/") + mount.source[match.end() :]
            resolved.append(Mount(source=source, target=mount.target))
        else:
            known = ", ".join(f"{{{name}}}" for name in sorted(placeholders)) or "none"
            complaints[f"mounts[{index}].source"] = f"unknown placeholder {match[0]}, known: {known}"
    return tuple(resolved)
