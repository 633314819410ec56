"""Measure resets or launches of one base, beside its peers."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from webserv_rt.bench.census import growth, take_census
from webserv_rt.bench.figures import Memory, Peer, Result, busy_cpu_ms, machine, percentiles
from webserv_rt.errors import WebservError
from webserv_rt.host import Host, StrategyName
from webserv_rt.instance import Instance, Timing
from webserv_rt.strategy import ask

Kind = Literal["reset", "launch"]


@dataclass
class _Samples:
    timings: list[Timing] = field(default_factory=list)
    n_errors: int = 0
    first_error: str = ""
    cpu_ms: float = 0.0
    wall_s: float = 0.0


def measure_base(
    pool: Path,
    base: str,
    kind: Kind,
    *,
    strategy: StrategyName,
    rounds: int,
    peers: Sequence[Path] = (),
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Result:
    """Measure `rounds` resets (or launches) one after the other, then what one instance costs at rest.

    For `standby` every round starts with a spare ready; how fast spares are made shows in `resets_per_s`,
    which counts the whole time. `peers` are scripts (see recipes/wordpress/cold-reset.sh).
    """
    with Host(pool) as host:
        _settle(host, base, strategy)
        before = take_census(host.pool.path)
        with host.launch(base, strategy=strategy) as instance:
            samples = _rounds(host, instance, kind, strategy, rounds, progress)
            memory = _memory(instance)
        storage_bytes = _storage(host, base)
        host.await_spares(base)
        host.reaper.drain()
        leaks = growth(before, _settled(host.pool.path, before))
        measured_peers = {path.stem: _measure_peer(host, base, path, rounds) for path in peers}
    if not samples.timings:
        raise WebservError(f"every {kind} of {base} failed; the first: {samples.first_error}")
    return {
        "site": base,
        "strategy": strategy,
        "rounds": rounds,
        "errors": samples.n_errors,
        "engine_ms": percentiles([timing.engine_ms for timing in samples.timings]),
        "ready_ms": percentiles([timing.ready_ms for timing in samples.timings]),
        "cpu_ms_per_reset": round(samples.cpu_ms / rounds, 3),
        "resets_per_s": round(rounds / samples.wall_s, 3),
        "storage_bytes": storage_bytes,
        "memory": memory,
        "peers": measured_peers,
        "leaks": leaks,
        "machine": machine(),
    }


def _settle(host: Host, base: str, strategy: StrategyName) -> None:
    """Start one instance and let it go, so that what is made once per host is not taken for a leak."""
    host.launch(base, strategy=strategy).remove()
    host.await_spares(base)
    host.reaper.drain()


def _rounds(
    host: Host,
    instance: Instance,
    kind: Kind,
    strategy: StrategyName,
    rounds: int,
    progress: Callable[[int, int | None], None],
) -> _Samples:
    samples = _Samples()
    cpu_before, began = busy_cpu_ms(), time.perf_counter()
    for number in range(rounds):
        host.await_spares(instance.base_name)
        try:
            samples.timings.append(_round(host, instance, kind, strategy))
        except WebservError as error:
            samples.n_errors += 1
            samples.first_error = samples.first_error or str(error)
        progress(number + 1, rounds)
    host.reaper.drain()
    samples.cpu_ms, samples.wall_s = busy_cpu_ms() - cpu_before, time.perf_counter() - began
    return samples


def _round(host: Host, instance: Instance, kind: Kind, strategy: StrategyName) -> Timing:
    began = time.perf_counter()
    if kind == "reset":
        return _answered(instance, instance.reset(), began)
    with host.launch(instance.base_name, strategy=strategy) as launched:
        assert launched.timing is not None
        return _answered(launched, launched.timing, began)


def _answered(instance: Instance, timing: Timing, began: float) -> Timing:
    """Return the timing until the first correct answer: a spare's came before it was frozen, so ask now."""
    if instance.strategy.name != "standby":
        return timing
    wrong = ask(instance.incarnation)
    if wrong is not None:
        raise WebservError(f"the spare of {instance.base_name} does not answer: {wrong}")
    return Timing(timing.engine_ms, (time.perf_counter() - began) * 1000)


def _memory(instance: Instance) -> Memory:
    measured = instance.statistics()
    return {"cgroup_bytes": measured.memory_bytes, "pss_bytes": measured.pss_bytes}


def _storage(host: Host, base: str) -> int:
    """Return what a fresh instance holds on the pool: a difference of used blocks (`du` over-counts)."""
    n = 4
    host.reaper.drain()
    used_before = _used_bytes(host.pool.path)
    instances = [host.launch(base) for _ in range(n)]
    used = _used_bytes(host.pool.path) - used_before
    for instance in instances:
        instance.remove()
    return max(0, used // n)


def _used_bytes(pool: Path) -> int:
    fd = os.open(pool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        os.sync()
        status = os.fstatvfs(fd)
        return (status.f_blocks - status.f_bfree) * status.f_frsize
    finally:
        os.close(fd)


def _settled(pool: Path, before: dict[str, int]) -> dict[str, int]:
    """Take the census once the kernel has done what it puts off (namespaces, inodes), or after 5 s."""
    deadline = time.monotonic() + 5
    while growth(before, census := take_census(pool)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return census


def _measure_peer(host: Host, base: str, script: Path, rounds: int) -> Peer:
    work = host.owner.path / "peer"
    work.mkdir()
    root = host.base(base).path / "root"
    run = subprocess.run([script, root, work, str(rounds)], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise WebservError(f"peer {script.name} failed: {run.stderr[-2000:]}")
    samples = [json.loads(line)["ready_ms"] for line in run.stdout.splitlines() if line.startswith("{")]
    return {"ready_ms": percentiles(samples)}
