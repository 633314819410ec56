"""Owners: whatever a process made is found when it is gone, and left alone while it lives (invariant 3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from webserv_rt.storage.pool import Pool

LIVE = """
import sys, time
from pathlib import Path
from webserv_rt.storage.pool import Pool
owner = Pool.open(Path(sys.argv[1])).new_owner()
(owner.path / "made").write_bytes(b"x")
print(owner.id, flush=True)
time.sleep(60)
"""

# Kills itself before step N of what may leave something behind: no step is an unlucky one.
KILLED = """
import os, signal, sys
from pathlib import Path
from webserv_rt.storage.pool import Pool

n_steps = int(sys.argv[2])
pool = Pool.open(Path(sys.argv[1]))

def count(event, arguments):
    global n_steps
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock", "os.listdir"):
        n_steps -= 1
        if n_steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
with pool.new_owner() as owner:
    (owner.path / "made").mkdir()
    (owner.path / "made" / "below").mkdir()
n_steps = 1 << 30
"""


@pytest.fixture
def directory_pool(reflink_directory: Path) -> Iterator[Pool]:
    with Pool.create(reflink_directory / "pool") as pool:
        yield pool


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def owner_names(pool: Pool) -> list[str]:
    return [entry.name for entry in (pool.path / "owners").iterdir()]


def test_owner_has_a_directory_as_long_as_its_block_lasts(directory_pool: Pool) -> None:
    with directory_pool.new_owner() as owner:
        assert owner.path == directory_pool.path / "owners" / owner.id
        os.mkdir("made", dir_fd=owner.directory.fileno())
        assert (owner.path / "made").is_dir()
    assert owner_names(directory_pool) == []


def test_error_in_the_block_removes_the_directory_too(directory_pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError), directory_pool.new_owner():
        raise ZeroDivisionError
    assert owner_names(directory_pool) == []


def test_living_owner_is_not_collected_by_its_own_or_another_process(directory_pool: Pool) -> None:
    with start(LIVE, str(directory_pool.path)) as process, directory_pool.new_owner() as own:
        assert process.stdout is not None
        other = process.stdout.readline().strip()
        assert directory_pool.dead_owners() == []
        assert sorted(owner_names(directory_pool)) == sorted([own.id, other])
        process.kill()
        process.wait()
        (found,) = directory_pool.dead_owners()
        assert found.id == other
        found.remove()
        assert owner_names(directory_pool) == [own.id]


def test_killed_owner_is_found_with_what_it_left(directory_pool: Pool) -> None:
    with start(LIVE, str(directory_pool.path)) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        process.kill()
    (found,) = directory_pool.dead_owners()
    assert (found.id, found.path) == (name, directory_pool.path / "owners" / name)
    assert (found.path / "made").read_bytes() == b"x"
    found.remove()
    assert owner_names(directory_pool) == []


def test_dead_owner_goes_to_one_collector_only(directory_pool: Pool) -> None:
    for _ in range(20):
        directory_pool.new_owner().close()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: directory_pool.dead_owners(), range(8)))
    names = [owner.id for owners in found for owner in owners]
    assert len(names) == len(set(names)) == 20
    for owners in found:
        for owner in owners:
            owner.remove()
    assert owner_names(directory_pool) == []


def test_dead_owner_let_go_of_is_found_again(directory_pool: Pool) -> None:
    directory_pool.new_owner().close()
    (found,) = directory_pool.dead_owners()
    with pytest.raises(ZeroDivisionError), found:
        raise ZeroDivisionError
    (again,) = directory_pool.dead_owners()
    assert again.id == found.id
    assert again.path.is_dir()
    again.remove()


def test_collector_that_is_killed_leaves_the_owner_to_the_next(directory_pool: Pool) -> None:
    directory_pool.new_owner().close()
    script = LIVE.replace("new_owner()", "dead_owners()[0]")
    with start(script, str(directory_pool.path)) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert directory_pool.dead_owners() == []
        process.kill()
    (found,) = directory_pool.dead_owners()
    assert found.id == name
    found.remove()


def test_child_processes_do_not_keep_their_owner_alive(directory_pool: Pool) -> None:
    script = LIVE.replace(
        "time.sleep(60)", "import subprocess; subprocess.Popen(['sleep', '60']); time.sleep(60)"
    )
    with start(script, str(directory_pool.path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            pass
        child = int(children.read_text())
        while Path(f"/proc/{child}/comm").read_text() != "sleep\n":
            pass  # until it executes its own program it holds all that its parent does
        process.kill()
        process.wait()
        try:
            (found,) = directory_pool.dead_owners()
            found.remove()
        finally:
            os.kill(child, signal.SIGKILL)


def test_owner_killed_at_any_step_is_collected_whole(directory_pool: Pool) -> None:
    n_steps = 0
    while True:
        with start(KILLED, str(directory_pool.path), str(n_steps)) as process:
            _, err = process.communicate()
        with directory_pool.new_owner() as own:
            for owner in directory_pool.dead_owners():
                owner.remove()
            assert owner_names(directory_pool) == [own.id]
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
        n_steps += 1
    assert n_steps >= 8


def test_creation_and_collection_do_not_disturb_each_other(directory_pool: Pool) -> None:
    def live(_: int) -> None:
        with directory_pool.new_owner() as owner:
            (owner.path / "made").mkdir()
            for dead in directory_pool.dead_owners():
                dead.remove()
            assert (owner.path / "made").is_dir()
            directory_pool.new_owner().close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(live, range(100)))
    for owner in directory_pool.dead_owners():
        owner.remove()
    assert owner_names(directory_pool) == []


def test_no_descriptor_remains(directory_pool: Pool) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        directory_pool.new_owner().close()
        with directory_pool.new_owner():
            for owner in directory_pool.dead_owners():
                owner.remove()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# What an owner had cloned shortly before it was killed holds its lock, too, until it executes a program.
SURVIVED = """
import os, signal, subprocess, sys
from pathlib import Path
from webserv_rt.storage.pool import Pool
owner = Pool.open(Path(sys.argv[1])).new_owner()
lock = os.dup(owner._lock.fileno())
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
subprocess.Popen(["/bin/sleep", sys.argv[2]], pass_fds=[lock], **quiet)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_lock_that_outlives_its_owner_for_an_instant_is_waited_for(directory_pool: Pool) -> None:
    start(SURVIVED, str(directory_pool.path), "0.3").communicate()
    [owner] = directory_pool.dead_owners()
    owner.remove()


def test_lock_that_outlives_its_owner_for_long_is_left(directory_pool: Pool) -> None:
    start(SURVIVED, str(directory_pool.path), "2").communicate()
    assert directory_pool.dead_owners() == []
    time.sleep(2)
    [owner] = directory_pool.dead_owners()
    owner.remove()
