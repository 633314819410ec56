"""What clones and removals cost, beside a hand-written loop that does only the system calls.

Run: pytest tests/bench_clone.py
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

from webserv_rt.kernel.clone import clone_tree
from webserv_rt.kernel.remove import remove_tree
from webserv_rt.kernel.subvolume import create_subvolume, snapshot_subvolume
from webserv_rt.storage.pool import Pool

N_ROUNDS = 15
WORST_RATIO = 1.5

# Files per directory and their size: as mariadb-install-db with a WordPress, and initdb, leave them.
DATADIRS = {
    "mariadb": [(6, 12 << 20), (20, 1 << 20), (100, 96 << 10), (100, 2 << 10)],
    "postgresql": [(1, 16 << 20), (60, 8 << 10), (301, 24 << 10), (301, 24 << 10), (303, 0)],
}
Clone = Callable[[int, int, str], None]


@pytest.fixture(scope="module", params=DATADIRS)
def datadir(request: pytest.FixtureRequest, pool: Pool) -> Iterator[int]:
    """A directory like a database's, laid down sequentially, open."""
    root = pool.path / "builds" / request.param
    for number, (n_files, size) in enumerate(DATADIRS[request.param]):
        directory = root / f"directory-{number}"
        directory.mkdir(parents=True)
        for index in range(n_files):
            (directory / f"{16384 + index}").write_bytes(os.urandom(size))
            os.chown(directory / f"{16384 + index}", 104, 112)
    fd = os.open(root, os.O_RDONLY)
    os.sync()
    yield fd
    os.close(fd)
    with_parent(root, lambda parent: remove_tree(parent, root.name))


@pytest.fixture
def scratch(pool: Pool) -> Iterator[int]:
    with pool.new_owner() as owner:
        yield owner.directory.fileno()


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Clone]:
    library = tmp_path_factory.mktemp("floor") / "floor.so"
    source = Path(__file__).with_name("floor_clone.c")
    subprocess.run(["cc", "-O2", "-w", "-shared", "-fPIC", "-pthread", "-o", library, source], check=True)
    function = ctypes.CDLL(str(library)).floor_clone
    return lambda n: lambda source, dest, name: function(source, dest, name.encode(), n)


def with_parent(path: Path, action: Callable[[int], None]) -> None:
    parent = os.open(path.parent, os.O_RDONLY)
    try:
        action(parent)
    finally:
        os.close(parent)


def timed(clone: Clone, source: int, scratch: int) -> float:
    start = time.perf_counter()
    clone(source, scratch, "clone")
    elapsed = time.perf_counter() - start
    remove_tree(scratch, "clone")
    return elapsed


@pytest.mark.parametrize("n_threads", [1, 2])
def test_clone_costs_little_more_than_its_system_calls(
    benchmark: Any,
    figures: dict[str, Any],
    floor: Callable[[int], Clone],
    datadir: int,
    scratch: int,
    n_threads: int,
) -> None:
    def ours(source: int, dest: int, name: str) -> None:
        clone_tree(source, dest, name, n_threads=n_threads)

    minimal = floor(n_threads)
    # In turn, so that both meet the same load of the machine.
    floors, clones = [], []
    for _ in range(N_ROUNDS):
        floors.append(timed(minimal, datadir, scratch))
        clones.append(timed(ours, datadir, scratch))
    figures["floor_ms"] = statistics.median(floors) * 1e3
    figures["ratio"] = statistics.median(clones) / statistics.median(floors)
    benchmark.pedantic(
        ours, (datadir, scratch, "clone"), teardown=lambda *_: remove_tree(scratch, "clone"), rounds=N_ROUNDS
    )
    assert figures["ratio"] <= WORST_RATIO


def test_removal(benchmark: Any, datadir: int, scratch: int) -> None:
    benchmark.pedantic(
        remove_tree,
        (scratch, "clone"),
        setup=lambda: clone_tree(datadir, scratch, "clone"),
        rounds=N_ROUNDS,
    )


def test_subvolume_snapshot(benchmark: Any, btrfs: Path) -> None:
    names = iter(range(1000))
    parent = os.open(btrfs, os.O_RDONLY)
    create_subvolume(parent, "subvolume")
    for number in range(1000):
        (btrfs / "subvolume" / f"{number}").touch()
    source = os.open(btrfs / "subvolume", os.O_RDONLY)
    benchmark.pedantic(lambda: snapshot_subvolume(source, parent, f"snapshot-{next(names)}"), rounds=N_ROUNDS)
    os.close(source)
    for name in ("subvolume", *(f"snapshot-{number}" for number in range(N_ROUNDS))):
        remove_tree(parent, name)
    os.close(parent)
