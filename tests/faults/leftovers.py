"""What an operation could leave behind, listed one by one.

Not counted for the whole machine, as `webserv_rt.bench.census` does: others work on it while tests run.
Detached mounts and namespaces are held by a descriptor or a process alone, so these stand for them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The kernel takes threads, processes and their namespaces apart after it has reported their end.
_SETTLING_S: Final = 5.0

# Of this process alone: other sessions may run the same tests.
CGROUP: Final = f"webserv_rt_faults_{os.getpid()}"


@dataclass(frozen=True)
class Scope:
    """Where to look: directories that are listed in full, and groups in every cgroup hierarchy."""

    directories: tuple[Path, ...] = ()
    cgroup: str = CGROUP


Leftovers = Counter[str]


def take(scope: Scope) -> Leftovers:
    """Return all there is now."""
    return Counter(_list(scope))


def require_none(scope: Scope, before: Leftovers, circumstances: str) -> None:
    """Fail unless everything there is now was there before."""
    deadline = time.monotonic() + _SETTLING_S
    while more := take(scope) - before:
        assert time.monotonic() < deadline, f"{circumstances}, and left {sorted(more.elements())}"
        time.sleep(0.002)


def _list(scope: Scope) -> Iterator[str]:
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            yield f"descriptor of {path.readlink()}"
    yield from (f"thread {path.name}" for path in Path("/proc/self/task").iterdir())
    yield from (f"process {pid}" for pid in sorted(_descendants(os.getpid())))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - overlay webserv_rt " in line or any(str(directory) in line for directory in scope.directories):
            yield f"mount {line}"
    for directory in scope.directories:
        yield from (f"file {path}" for path in _paths(directory))
    for hierarchy in _cgroup_hierarchies():
        group = hierarchy / scope.cgroup
        for path in [group, *_paths(group)]:
            if path.is_dir():
                yield f"cgroup {path}"
                yield from (f"process {pid} in {path}" for pid in _members(path))


def _paths(directory: Path) -> Iterator[Path]:
    for parent, names, files in os.walk(directory):
        yield from (Path(parent, name) for name in (*names, *files))


def _descendants(pid: int) -> Iterator[int]:
    """Yield the living and dead processes below PID, those of all its threads."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (thread / "children").read_text().split():
                    yield int(child)
                    yield from _descendants(int(child))


def _cgroup_hierarchies() -> list[Path]:
    fields = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [Path(field[1]) for field in fields if field[2] in ("cgroup", "cgroup2")]


def _members(group: Path) -> list[str]:
    with suppress(OSError):
        return (group / "cgroup.procs").read_text().split()
    return []
