"""Find and remove what owners that are gone left behind (invariant 3)."""

from __future__ import annotations

import errno
from contextlib import ExitStack
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
    with ExitStack() as taken:
        for owner in [taken.enter_context(owner) for owner in pool.dead_owners()]:
            n_processes += end_cgroup(cgroups, f"{cgroup_parent}/{owner.id}")
            owner.remove()
            names.append(owner.id)
    return Collected(tuple(names), n_processes)


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
