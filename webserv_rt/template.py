"""What all instances of one base share: the open layers, the resolved users, the encoded half of the plan."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from webserv_rt.errors import WebservError
from webserv_rt.id_ranges import IDS_PER_RANGE
from webserv_rt.kernel import plan as steps
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.kernel.mount import clone_mount
from webserv_rt.kernel.plan import Plan, Program, Wait
from webserv_rt.kernel.remove import remove_tree
from webserv_rt.profile import Profile
from webserv_rt.resolved_site import ResolvedService, ResolvedSite
from webserv_rt.site import Wait as SiteWait
from webserv_rt.storage.beneath import Beneath
from webserv_rt.storage.layers import make_frame
from webserv_rt.storage.passwd import User, resolve_user

log = logging.getLogger(__name__)

# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, SYS_CHROOT: what
# servers that start as root and step down need, and nothing that reaches beyond the instance.
KEPT_CAPABILITIES: Final = sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18))

_MASKED: Final = (
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/sysrq-trigger",
    "/proc/kmsg",
    "/proc/kallsyms",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/pressure",
    "/proc/asound",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/cgroup",
    "/sys/kernel",
)
_READ_ONLY: Final = ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs")
_VOLATILE_MOUNT: Final = steps.MS_NOSUID | steps.MS_NODEV


@dataclass(frozen=True)
class Attached:
    """A detached mount and where it goes inside."""

    mount: Descriptor
    target: str


@dataclass(frozen=True)
class Source:
    """An open directory and where what is made of it goes inside."""

    directory: Descriptor
    target: str


class Template:
    """A base made ready to start instances from; owned by the Host, shared by its instances."""

    def __init__(
        self, name: str, root: Descriptor, site: ResolvedSite, profile: Profile, scratch: Descriptor
    ) -> None:
        self.name = name
        self.site = site
        self.profile = profile
        self.unapplied_limits: tuple[str, ...] = ()
        with ExitStack() as opened:
            self.root = opened.enter_context(root)
            self.root_status = os.fstat(root.fileno())
            _require_mapped(
                f"the root directory of base {name}", self.root_status.st_uid, self.root_status.st_gid
            )
            self.programs = [_program(root, service) for service in site.services]
            self.data = [_data(opened, root, data.path) for data in site.data if data.mode == "reflink"]
            self.host_directories = [
                Source(opened.enter_context(open_host_directory(mount.source)), mount.target)
                for mount in site.mounts
            ]
            frame_name = f"frame-{name}"
            opened.callback(lambda: remove_tree(scratch.fileno(), frame_name))
            targets = [mount.target for mount in site.mounts]
            self.frame = opened.enter_context(make_frame(scratch, frame_name, root, site.hosts, targets))
            self._opened = opened.pop_all()

    def program(
        self,
        arguments: tuple[str, ...],
        user: str = "root",
        directory: str = "/",
        environment: dict[str, str] | None = None,
    ) -> Program:
        """Describe a command to run inside, with the first service's environment as its own."""
        found = _mapped_user(self.root, user)
        merged = _user_environment(found, user) | self.site.services[0].environment | (environment or {})
        return Program(
            name=arguments[0],
            arguments=arguments,
            environment=merged,
            directory=directory,
            uid=found.uid,
            gid=found.gid,
            groups=found.groups,
        )

    def note_unapplied(self, limits: tuple[str, ...]) -> None:
        """Remember, and say once, which limits of the profile this host's cgroups do not offer."""
        if limits and limits != self.unapplied_limits:
            log.warning("site %s: this host has no cgroup limit for %s", self.name, ", ".join(limits))
            self.unapplied_limits = limits

    def close(self) -> None:
        """Let go of the layers."""
        self._opened.close()


def describe_root(
    plan: Plan, root: Descriptor, attached: Sequence[Attached], root_id: int, shm_bytes: int
) -> None:
    """Add the steps that build an instance's files: `root`, what is attached to it, /proc, /dev."""
    plan.root(root)
    for mount in attached:
        plan.attach(mount.mount, mount.target)
    plan.mount("proc", "/proc", steps.MS_NOSUID | steps.MS_NODEV | steps.MS_NOEXEC)
    plan.mount("sysfs", "/sys", steps.MS_NOSUID | steps.MS_NODEV | steps.MS_NOEXEC | steps.MS_RDONLY)
    plan.devices(root_id)
    shm = f"mode=1777,size={shm_bytes},uid={root_id},gid={root_id}"
    plan.mount("tmpfs", "/dev/shm", _VOLATILE_MOUNT, shm)
    for path in _MASKED:
        plan.mask(path)
    for path in _READ_ONLY:
        plan.read_only(path)


def open_host_directory(source: str) -> Descriptor:
    """Open a directory of the host that is to be mounted inside, symbolic links followed."""
    try:
        return open_directory(os.path.realpath(source))
    except OSError as error:
        raise WebservError(f"mount source {source}: {error.strerror}") from error


def _data(opened: ExitStack, root: Descriptor, path: str) -> Source:
    """Open a data directory of the base, through no symbolic link: it could lead to the host."""
    try:
        with Beneath(root.fileno()) as beneath:
            directory = Descriptor(os.dup(beneath.directory(path.lstrip("/"))))
    except FileNotFoundError:
        raise WebservError(f"data directory {path}: the base has no such directory") from None
    except OSError:
        raise WebservError(
            f"data directory {path}: a symbolic link or a file is on the way to it in the base: "
            "name the real path"
        ) from None
    return Source(opened.enter_context(directory), path)


def bind(source: Source) -> Attached:
    """Clone a host directory as a read-only mount; it attaches once, so each instance needs its own."""
    return Attached(clone_mount(source.directory, read_only=True), source.target)


def _program(root: Descriptor, service: ResolvedService) -> Program:
    user = _mapped_user(root, service.user)
    return Program(
        name=service.name,
        arguments=service.command,
        environment=_user_environment(user, service.user) | service.environment,
        directory=service.directory,
        uid=user.uid,
        gid=user.gid,
        groups=user.groups,
        runs_once=service.run == "once",
        wait=_wait(service.wait),
    )


def _mapped_user(root: Descriptor, name: str) -> User:
    user = resolve_user(root.fileno(), name)
    _require_mapped(f"user {name}", user.uid, user.gid, *user.groups)
    return user


def _require_mapped(whose: str, *ids: int) -> None:
    if max(ids) >= IDS_PER_RANGE:
        raise WebservError(f"{whose}: an instance has the ids 0 to {IDS_PER_RANGE - 1}, not {max(ids)}")


def _user_environment(user: User, name: str) -> dict[str, str]:
    return {"HOME": user.home, "USER": name.partition(":")[0], "LANG": "C.UTF-8"}


def _wait(wait: SiteWait | None) -> Wait:
    if wait is None:
        return Wait()
    timeout_ms = int(wait.timeout_s * 1000)
    if wait.tcp is not None:
        return Wait(steps.WAIT_TCP, port=wait.tcp, timeout_ms=timeout_ms)
    if wait.unix is not None:
        return Wait(steps.WAIT_UNIX, path=wait.unix, timeout_ms=timeout_ms)
    assert wait.path is not None
    return Wait(steps.WAIT_PATH, path=wait.path, timeout_ms=timeout_ms)
