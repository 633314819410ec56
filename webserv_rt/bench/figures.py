"""The figures that a benchmark prints, and the machine that they were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict


class Percentiles(TypedDict):
    """Milliseconds."""

    p50: float
    p95: float
    p99: float
    max: float


class Memory(TypedDict):
    """Bytes per instance; None where this host does not count them."""

    cgroup_bytes: int | None
    pss_bytes: int


class Peer(TypedDict):
    """Another way to do the same, measured in the same run."""

    ready_ms: Percentiles


class Result(TypedDict):
    """What `webserv-rt bench --json` prints. `leaks` holds what there was more of at the end."""

    site: str
    strategy: str
    rounds: int
    errors: int
    engine_ms: Percentiles
    ready_ms: Percentiles
    cpu_ms_per_reset: float
    resets_per_s: float
    storage_bytes: int
    memory: Memory
    peers: dict[str, Peer]
    leaks: dict[str, int]
    machine: dict[str, str | int]


def percentiles(samples_ms: Sequence[float]) -> Percentiles:
    """Return the percentiles by the nearest rank, so that each is a value that was measured."""
    if not samples_ms:
        raise ValueError("no round ended well, so there is nothing to take percentiles of")
    ordered = sorted(samples_ms)

    def rank(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    return {"p50": rank(0.50), "p95": rank(0.95), "p99": rank(0.99), "max": round(ordered[-1], 3)}


def machine() -> dict[str, str | int]:
    """Describe this machine."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "kernel": platform.release(),
        "processor": model,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
    }


def busy_cpu_ms() -> float:
    """Return the processor time that this machine has spent on anything, in all."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[1:8])
    return (user + nice + system + irq + softirq) * 1000 / os.sysconf("SC_CLK_TCK")
