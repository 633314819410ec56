"""Count everything on this machine that an instance could leave behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NAMESPACE_KINDS: Final = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")

Census = dict[str, int]


def take_census(pool: Path | None = None) -> Census:
    """Return the counts now: the whole machine's, this process's descriptors, the pool's used blocks."""
    counts = {
        "processes": len(list(_pids())),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "namespaces": len(_namespaces()),
        "cgroups": _count_cgroups(),
        "loop_devices": sum(
            1 for path in Path("/sys/block").glob("loop*") if (path / "loop/backing_file").exists()
        ),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }
    if pool is not None:
        os.sync()
        status = os.statvfs(pool)
        counts["pool_blocks"] = status.f_blocks - status.f_bfree
        counts["pool_files"] = status.f_files - status.f_ffree
    return counts


def growth(before: Census, after: Census) -> Census:
    """Return what there is more of afterwards (nothing else: fewer is no leak)."""
    return {name: after[name] - count for name, count in before.items() if after[name] > count}


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _namespaces() -> set[tuple[str, int]]:
    found = set()
    for pid in _pids():
        for kind in _NAMESPACE_KINDS:
            # A process may end while it is being looked at.
            with contextlib.suppress(OSError):
                found.add((kind, os.stat(f"/proc/{pid}/ns/{kind}").st_ino))
    return found


def _count_cgroups() -> int:
    return sum(1 for hierarchy in _hierarchies() for _ in os.walk(hierarchy))


def _hierarchies() -> list[str]:
    fields = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [field[1] for field in fields if field[2] in ("cgroup", "cgroup2")]
