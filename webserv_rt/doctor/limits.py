"""Limits that bite somewhere between 100 and 1,000 instances, and how many instances each of them allows.

An instance is counted as a WordPress (nginx, php-fpm, MariaDB), the heaviest of the usual sites; figures are
measured ones, rounded up.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from webserv_rt.doctor.check import Check

_WANTED_INSTANCES = 1000
_SYSCTL = Path("/proc/sys")


@dataclass(frozen=True)
class Limit:
    """A sysctl that is shared by all instances of the host."""

    name: str
    per_instance: int
    what: str
    used: Callable[[], int] = lambda: 0

    def check(self) -> Check | None:
        """Return how many more instances fit; None where this kernel has no such limit."""
        path = _SYSCTL / self.name.replace(".", "/")
        if not path.exists():
            return None
        limit = int(path.read_text().split()[0])
        n_instances = max(0, limit - self.used()) // self.per_instance
        needed = self.used() + _WANTED_INSTANCES * self.per_instance
        return room_for_instances(
            self.name,
            limit,
            n_instances,
            f"{self.per_instance} {self.what} each",
            raise_sysctl(self.name, needed),
        )


def _n_tasks() -> int:
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _n_open_files() -> int:
    return int((_SYSCTL / "fs/file-nr").read_text().split()[0])


_LIMITS = (
    Limit("kernel.pid_max", 28, "processes and threads", _n_tasks),
    Limit("kernel.threads-max", 28, "processes and threads", _n_tasks),
    # Shared open files, sockets, pipes and epolls count once; 500 is twice what a WordPress at rest has.
    Limit("fs.file-max", 500, "open files", _n_open_files),
)
_DESCRIPTORS_PER_INSTANCE = 16  # of the runtime itself: namespaces, pidfd, layers, log, listening socket
_MEMORY_MIB_PER_INSTANCE = 130  # private memory of a WordPress that has served a few pages
_BACKLOG = 128
_MAPPINGS = 65530  # the kernel's default


def examine() -> list[Check]:
    """Return the checks of limits, those that hold for all instances together first."""
    shared = (limit.check() for limit in _LIMITS)
    own = (_descriptors(), _keys(), _pipe_pages(), _backlog(), _mappings(), _huge_pages(), _memory())
    return [check for check in (*shared, *own) if check is not None]


def room_for_instances(name: str, limit: int, n_instances: int, need: str, advice: str) -> Check:
    """Return the check of a LIMIT that lets N_INSTANCES more run, where each has the NEED."""
    detail = f"{limit:,}: room for {n_instances:,} more instances ({need})"
    if n_instances >= _WANTED_INSTANCES:
        return Check(name, "ok", detail)
    return Check(name, "degraded" if n_instances > 0 else "missing", detail, advice)


def raise_sysctl(sysctl: str, least: int) -> str:
    """Return the advice to set a sysctl to the power of two that is at least LEAST."""
    return f"sysctl -w {sysctl}={1 << (least - 1).bit_length()}, and in /etc/sysctl.d to keep it"


def _descriptors() -> Check:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    if hard == resource.RLIM_INFINITY:
        hard = int((_SYSCTL / "fs/nr_open").read_text())
    n_instances = max(0, hard - used) // _DESCRIPTORS_PER_INSTANCE
    need = f"{_DESCRIPTORS_PER_INSTANCE} descriptors of the runtime each, and two per open connection"
    return room_for_instances(
        "RLIMIT_NOFILE", hard, n_instances, need, "ulimit -Hn 65536, or LimitNOFILE= of the service"
    )


def _keys() -> Check | None:
    path = _SYSCTL / "kernel/keys/maxkeys"
    if not path.exists():
        return None
    detail = f"{int(path.read_text())} per uid, and every instance has uids of its own: no bound here"
    return Check("kernel.keys.maxkeys", "ok", detail)


def _pipe_pages() -> Check | None:
    path = _SYSCTL / "fs/pipe-user-pages-soft"
    if not path.exists():
        return None
    detail = f"{int(path.read_text()):,} per uid; CAP_SYS_ADMIN (the gateway) is exempt: no bound here"
    return Check("fs.pipe-user-pages-soft", "ok", detail)


def _backlog() -> Check:
    limit = int((_SYSCTL / "net/core/somaxconn").read_text())
    detail = f"{limit:,} connections of an instance can wait while it is reset"
    if limit >= _BACKLOG:
        return Check("net.core.somaxconn", "ok", detail)
    return Check("net.core.somaxconn", "degraded", detail, raise_sysctl("net.core.somaxconn", 4096))


def _mappings() -> Check:
    limit = int((_SYSCTL / "vm/max_map_count").read_text())
    detail = f"{limit:,} in one process; a WordPress has 2,100 in all of its own"
    if limit >= _MAPPINGS:
        return Check("vm.max_map_count", "ok", detail)
    return Check("vm.max_map_count", "degraded", detail, f"sysctl -w vm.max_map_count={_MAPPINGS}")


def _huge_pages() -> Check:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", path.read_text()) if path.exists() else None
    name = chosen[1] if chosen else "not in this kernel"
    if name in ("madvise", "always"):
        return Check("huge pages", "ok", f"transparent, {name}")
    advice = f"echo madvise > {path}" if chosen else "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE"
    return Check("huge pages", "degraded", f"transparent: {name}; forks of large sites take longer", advice)


def _memory() -> Check:
    available = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert available, "/proc/meminfo has no MemAvailable"
    n_mib = int(available[1]) >> 10
    n_instances = n_mib // _MEMORY_MIB_PER_INSTANCE
    detail = (
        f"{n_mib:,} MiB available: room for {n_instances:,} instances ({_MEMORY_MIB_PER_INSTANCE} MiB each)"
    )
    if n_instances >= 16:
        return Check("memory", "ok", detail)
    return Check("memory", "degraded", detail, "run fewer instances or smaller sites, or add memory")
