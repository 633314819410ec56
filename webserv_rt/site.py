"""The site spec: how an application runs, is found ready, warmed up and stopped (recipes/NAME/site.toml)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from webserv_rt.site_fields import (
    AbsolutePath,
    Command,
    Egress,
    Environment,
    FileName,
    HostPath,
    Hosts,
    HttpStatus,
    InnerPath,
    Port,
    Ports,
    Seconds,
    SignalName,
    SiteName,
    SocketPath,
    Text,
    UrlPath,
    UserName,
    repeated,
)
from webserv_rt.toml_lines import KeyPath
from webserv_rt.toml_model import Table, load_toml, quote, refuse


def _exactly_one(table: Table, keys: tuple[str, ...]) -> None:
    given = [key for key in keys if getattr(table, key) is not None]
    if len(given) != 1:
        raise ValueError(f"must have exactly one of {', '.join(keys)}, has {' and '.join(given) or 'none'}")


class Wait(Table):
    """What must hold before the next service starts: something listens, or a file is there."""

    tcp: Port | None = None
    unix: SocketPath | None = None
    path: AbsolutePath | None = None
    timeout_s: Seconds = 30

    @model_validator(mode="after")
    def _one_condition(self) -> Wait:
        _exactly_one(self, ("tcp", "unix", "path"))
        return self


class Service(Table):
    """One program that pid 1 starts; its output goes to logs/NAME.log."""

    name: FileName
    command: Command
    user: UserName = "root"
    directory: AbsolutePath | None = None
    environment: Environment = Field(default_factory=dict)
    run: Literal["always", "once"] = "always"
    wait: Wait | None = None


class Entrypoint(Table):
    """The image's own way to start, with what the spec says instead of the image."""

    command: Command | None = None
    pid1: bool = False
    user: UserName | None = None
    directory: AbsolutePath | None = None
    environment: Environment = Field(default_factory=dict)


class Ready(Table):
    """When an instance counts as ready: a web page, a listening port, or a command that exits with 0."""

    http: UrlPath | None = None
    status: HttpStatus = 200
    contains: Text | None = None
    tcp: Port | None = None
    command: Command | None = None
    timeout_s: Seconds = 60

    @model_validator(mode="after")
    def _one_probe(self) -> Ready:
        _exactly_one(self, ("http", "tcp", "command"))
        if self.http is None and (self.status != 200 or self.contains is not None):
            raise ValueError("status and contains belong to an http probe")
        return self


class Warm(Table):
    """A request made once on a spare, or before a snapshot is taken."""

    path: UrlPath
    method: Literal["GET", "HEAD", "POST"] = "GET"
    status: HttpStatus = 200


class Data(Table):
    """A directory that every instance gets as a clone of its own, instead of through the overlay."""

    path: InnerPath
    mode: Literal["reflink", "overlay"] = "reflink"
    database: Literal["mariadb", "postgresql"] | None = None


class Mount(Table):
    """A read-only bind of a host path; `source` may start with a placeholder such as {venv}."""

    source: HostPath
    target: InnerPath


class Stop(Table):
    """How services are asked to end, and how long they are waited for before they are killed."""

    signal: SignalName | None = None
    timeout_s: Seconds = 10


def _named_once(services: tuple[Service, ...]) -> tuple[Service, ...]:
    names = [service.name for service in services]
    refuse(
        {
            (index, "name"): '"init" is pid 1, with a log of its own'
            for index, name in enumerate(names)
            if name == "init"
        }
    )
    refuse(
        {
            (index, "name"): f"{quote(names[index])} is already the name of services[{first}]"
            for index, first in repeated(names).items()
        }
    )
    return services


def _apart(data: tuple[Data, ...]) -> tuple[Data, ...]:
    complaints: dict[KeyPath, str] = {}
    for index, inner in enumerate(data):
        for other_index, outer in enumerate(data):
            if inner.path == outer.path and other_index < index:
                complaints[(index, "path")] = f"{quote(inner.path)} is already data[{other_index}]"
            elif inner.path.startswith(f"{outer.path}/"):
                complaints[(index, "path")] = f"{quote(inner.path)} lies inside data[{other_index}]"
    refuse(complaints)
    return data


def _mounted_once(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    targets = [mount.target for mount in mounts]
    refuse(
        {
            (index, "target"): f"{quote(targets[index])} is already the target of mounts[{first}]"
            for index, first in repeated(targets).items()
        }
    )
    return mounts


class SiteSpec(Table):
    """A site.toml as written; what it leaves out is filled in by `webserv_rt.resolved_site.resolve`."""

    name: SiteName
    profile: SiteName = "php"
    hosts: Hosts | None = None
    port: Port | None = None
    ports: Ports | None = None
    egress: Egress = "none"
    services: Annotated[tuple[Service, ...], Field(strict=False), AfterValidator(_named_once)] = ()
    entrypoint: Entrypoint | None = None
    ready: Ready | None = None
    warm: Annotated[tuple[Warm, ...], Field(strict=False)] = ()
    data: Annotated[tuple[Data, ...], Field(strict=False), AfterValidator(_apart)] = ()
    mounts: Annotated[tuple[Mount, ...], Field(strict=False), AfterValidator(_mounted_once)] = ()
    stop: Stop = Stop()

    # These compare keys that lie apart. They are field validators, not one over the whole table, because the
    # latter would run only when nothing else is wrong, and all errors are to be told at once.
    @field_validator("ports")
    @classmethod
    def _ports_with_port(cls, ports: tuple[int, ...] | None, info: ValidationInfo) -> tuple[int, ...] | None:
        port = info.data.get("port")
        if ports is not None and port is not None and port not in ports:
            raise ValueError(f"must contain port ({port}), got {quote(ports)}")
        return ports

    @field_validator("entrypoint")
    @classmethod
    def _entrypoint_or_services(cls, value: Entrypoint | None, info: ValidationInfo) -> Entrypoint | None:
        if value is not None and info.data.get("services"):
            raise ValueError("stands instead of [[services]]: keep one of the two")
        return value

    @field_validator("mounts")
    @classmethod
    def _mounts_beside_data(cls, mounts: tuple[Mount, ...], info: ValidationInfo) -> tuple[Mount, ...]:
        complaints: dict[KeyPath, str] = {}
        for index, mount in enumerate(mounts):
            for data_index, data in enumerate(info.data.get("data", ())):
                if data.path == mount.target or data.path.startswith(f"{mount.target}/"):
                    complaints[(index, "target")] = f"{quote(mount.target)} would hide data[{data_index}]"
        refuse(complaints)
        return mounts


def load_site(path: Path) -> SiteSpec:
    """Read a site.toml; raises `SpecError` with file, line and key of everything that is wrong in it."""
    return load_toml(path, SiteSpec)
