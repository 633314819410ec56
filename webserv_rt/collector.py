"""Find and remove what owners that are gone left behind (invariant 3)."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from webserv_rt.kernel.cgroup import CgroupHost
from webserv_rt.kernel.error import KernelError
from webserv_rt.storage.pool import Pool


@dataclass(frozen=True)
class Collected:
    """What was removed."""

    owners: tuple[str, ...]
    n_processes: int


def collect(pool: Pool, cgroups: CgroupHost, cgroup_parent: str) -> Collected:
    """Remove every process, cgroup and directory of owners whose process is gone; nothing of live ones.

    Namespaces and mounts need no search: they are held by the processes alone.
    """
    names = []
    n_processes = 0
    for owner in pool.dead_owners():
        with owner:
            n_processes += _end_cgroup(cgroups, f"{cgroup_parent}/{owner.id}")
            owner.remove()
            names.append(owner.id)
    return Collected(tuple(names), n_processes)


def _end_cgroup(cgroups: CgroupHost, path: str) -> int:
    group = cgroups.group(path)
    try:
        n_processes = len(group.pids())
    except KernelError as error:
        if error.errno != errno.ENOENT:
            raise
        n_processes = 0
    group.kill()
    group.wait_empty()
    group.destroy()
    return n_processes
