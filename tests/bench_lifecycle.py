"""What a bare instance (one that only sleeps) costs, step by step, beside the system calls alone.

Run: pytest tests/bench_lifecycle.py
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webserv_rt import Host
from webserv_rt.kernel.cgroup import CgroupHost, Layout, Limits
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.kernel.mount import mount_overlay
from webserv_rt.kernel.namespace import new_network_namespace, new_user_namespace
from webserv_rt.kernel.process import open_init_program
from webserv_rt.storage.layers import WritableLayers
from webserv_rt.storage.pool import Pool

N_ROUNDS = 300
WORST_RATIO = 1.5
LIFECYCLE_P50_MS = 6.0

SITE = """
name = "bare"
port = 80
profile = "tiny"
[[services]]
name = "sleep"
command = ["/usr/bin/sleep", "infinity"]
[ready]
command = ["/usr/bin/true"]
[[mounts]]
source = "/usr"
target = "/usr"
"""


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("floor") / "floor.so"
    source = Path(__file__).with_name("floor_lifecycle.c")
    subprocess.run(["cc", "-O2", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def host(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    directory = tmp_path_factory.mktemp("bare")
    root = directory / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    for link in ("bin", "lib", "lib64", "sbin"):
        (root / link).symlink_to(f"usr/{link}")
    (directory / "site.toml").write_text(SITE)
    with Host(pool.path) as host:
        host.import_base(str(root), "bare", site=directory / "site.toml")
        yield host
        host.remove_base("bare")


def in_turn(rounds: int, *steps: Callable[[], float]) -> list[list[float]]:
    """Run the steps in turn, so that all meet the same load of the machine; return their milliseconds."""
    samples: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for step, kept in zip(steps, samples, strict=True):
            kept.append(step())
    return samples


def compare(figures: dict[str, Any], ours: list[float], floor: list[float]) -> None:
    ratio = statistics.median(ours) / statistics.median(floor)
    figures |= {
        "p50_ms": round(statistics.median(ours), 4),
        "p95_ms": round(statistics.quantiles(ours, n=20)[-1], 4),
        "floor_p50_ms": round(statistics.median(floor), 4),
        "floor_p95_ms": round(statistics.quantiles(floor, n=20)[-1], 4),
        "ratio": round(ratio, 3),
    }
    assert ratio <= WORST_RATIO


def test_overlay_mount(benchmark: Any, figures: dict[str, Any], floor: ctypes.CDLL, pool: Pool) -> None:
    with pool.new_owner() as owner:
        layers = WritableLayers(owner.directory, "x", 0, os.fstat(owner.directory.fileno()))
        os.mkdir("lower", dir_fd=owner.directory.fileno())
        lower = open_directory("lower", dir_fd=owner.directory.fileno())

        def fresh() -> None:
            # A volatile mount leaves a mark in its work directory that refuses the next one.
            layers.remove()
            layers.__init__(owner.directory, "x", 0, os.fstat(owner.directory.fileno()))  # type: ignore[misc]

        def timed(mount: Callable[[], Descriptor]) -> float:
            fresh()
            start = time.perf_counter()
            mounted = mount()
            elapsed = (time.perf_counter() - start) * 1000
            mounted.close()
            return elapsed

        def least() -> Descriptor:
            return Descriptor(
                floor.floor_overlay(lower.fileno(), layers.upper.fileno(), layers.work.fileno())
            )

        def ours() -> Descriptor:
            return mount_overlay([lower], layers.upper, layers.work, by_path=False)

        samples = in_turn(N_ROUNDS, lambda: timed(ours), lambda: timed(least))
        benchmark.pedantic(lambda: timed(ours), rounds=20)
        lower.close()
        layers.close()
    compare(figures, *samples)


def test_cgroup(benchmark: Any, figures: dict[str, Any], floor: ctypes.CDLL) -> None:
    """Create, four limits, remove: in each hierarchy what the limits need there."""
    limits = Limits(
        memory_bytes=1 << 30, cpu_weight=200, cpu_quota_us=150_000, cpu_period_us=100_000, pids=77
    )
    with CgroupHost() as cgroups:
        directories = [hierarchy.directory for hierarchy in cgroups.hierarchies]
        writes = floor_writes(cgroups)
        char_array = ctypes.c_char_p * (len(directories) + 1)
        hierarchies = char_array(*(directory.encode() for directory in directories), None)
        native_writes = (ctypes.c_char_p * (len(writes) + 1))(*(write.encode() for write in writes), None)

        def ours() -> float:
            start = time.perf_counter()
            group = cgroups.create("bench-ours")
            group.limit(limits)
            group.destroy()
            return (time.perf_counter() - start) * 1000

        def least() -> float:
            start = time.perf_counter()
            assert floor.floor_cgroup(hierarchies, native_writes, b"bench-floor") == 0
            return (time.perf_counter() - start) * 1000

        samples = in_turn(N_ROUNDS, ours, least)
        benchmark.pedantic(ours, rounds=20)
    compare(figures, *samples)


def floor_writes(cgroups: CgroupHost) -> list[str]:
    v1 = {
        "memory": ["memory.limit_in_bytes=1073741824"],
        "cpu": ["cpu.shares=2048", "cpu.cfs_quota_us=150000"],
        "pids": ["pids.max=77"],
    }
    v2 = {
        "memory": ["memory.max=1073741824"],
        "cpu": ["cpu.weight=200", "cpu.max=150000 100000"],
        "pids": ["pids.max=77"],
    }
    return [
        f"{index}/{write}"
        for index, hierarchy in enumerate(cgroups.hierarchies)
        for controller, files in (v2 if cgroups.layout is Layout.V2 else v1).items()
        if controller in hierarchy.controllers
        for write in files
    ]


def test_user_namespace(benchmark: Any) -> None:
    with open_init_program() as program:
        benchmark.pedantic(lambda: new_user_namespace(program, 0x7F000000, 65536).close(), rounds=N_ROUNDS)


def test_network_namespace(benchmark: Any) -> None:
    benchmark.pedantic(lambda: new_network_namespace().close(), rounds=N_ROUNDS)


def test_bare_lifecycle(benchmark: Any, figures: dict[str, Any], host: Host) -> None:
    """Create, start, remove, until nothing is left: the reaper's work included."""

    def lifecycle() -> float:
        start = time.perf_counter()
        instance = host.create("bare")
        instance.start()
        instance.remove()
        host.reaper.drain()
        return (time.perf_counter() - start) * 1000

    samples = [lifecycle() for _ in range(N_ROUNDS)]
    figures |= {
        "p50_ms": round(statistics.median(samples), 3),
        "p95_ms": round(statistics.quantiles(samples, n=20)[-1], 3),
    }
    benchmark.pedantic(lifecycle, rounds=20)
    assert statistics.median(samples) <= LIFECYCLE_P50_MS
