"""Find and remove what owners that are gone left behind (invariant 3)."""

from __future__ import annotations

import errno
import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from webserv_rt.kernel.cgroup import CgroupHost
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.error import KernelError
from webserv_rt.storage.owner import OwnerDirectory
from webserv_rt.storage.pool import Pool

_RECORD: Final = "cgroup"


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Collected:
    """What was removed; `left` says of owners that could not be, or not wholly, why."""

    owners: tuple[str, ...]
    n_processes: int
    left: tuple[str, ...]


def record_cgroup(owner: OwnerDirectory, path: str) -> None:
    """Note in its directory which cgroup an owner is about to make."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with Descriptor(os.open(_RECORD, flags, 0o600, dir_fd=owner.directory.fileno())) as record:
        os.write(record.fileno(), path.encode())


def collect(pool: Pool, cgroups: CgroupHost) -> Collected:
    """Remove every process, cgroup and directory of owners whose process is gone; nothing of live ones.

    Namespaces and mounts need no search: they are held by the processes alone. What cannot be removed now is
    left to the next collector: it must not keep this one's caller from working.
    """
    names, left = [], []
    n_processes = 0
    with ExitStack() as taken:
        for owner in [taken.enter_context(owner) for owner in pool.dead_owners()]:
            try:
                if path := _recorded_cgroup(owner):
                    n_processes += end_cgroup(cgroups, path)
                owner.remove()
                names.append(owner.id)
            except OSError as error:
                log.warning("removing what the dead owner %s left: %s", owner.path, error)
                left.append(f"{owner.path}: {error}")
    return Collected(tuple(names), n_processes, tuple(left))


def _recorded_cgroup(owner: OwnerDirectory) -> str:
    """Return the cgroup of an owner, "" when it was killed before it made one."""
    try:
        with Descriptor(
            os.open(_RECORD, os.O_RDONLY | os.O_CLOEXEC, dir_fd=owner.directory.fileno())
        ) as record:
            return os.read(record.fileno(), 4096).decode()
    except FileNotFoundError:
        return ""


def end_cgroup(cgroups: CgroupHost, path: str) -> int:
    """Kill what runs in the group and below, wait for its end and remove the group; return how many ran."""
    group = cgroups.group(path)
    n_processes = 0
    try:
        n_processes = len(group.pids())
        group.kill()
        group.wait_empty()
    except KernelError as error:
        # Where it was never made, or only in part, no process was in it.
        if error.errno != errno.ENOENT:
            raise
    group.destroy()
    return n_processes
