"""Ranges of ids: never one for two, whoever asks, and free again when their holder is gone."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from webserv_rt import id_ranges
from webserv_rt.errors import WebservError
from webserv_rt.id_ranges import FIRST_ID, IDS_PER_RANGE, N_BLOCKS, RANGES_PER_BLOCK, IdRanges

HOLDER = """
import pathlib, sys, time
from webserv_rt import id_ranges
id_ranges.LOCK_DIRECTORY = pathlib.Path(sys.argv[1])
ranges = id_ranges.IdRanges()
print(ranges.take(), flush=True)
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of the test's own, so that it may take them all."""
    monkeypatch.setattr(id_ranges, "LOCK_DIRECTORY", tmp_path / "locks")
    return tmp_path / "locks"


def test_ranges_lie_side_by_side_between_systemds_and_the_invalid_ids() -> None:
    ranges = IdRanges()
    taken = [ranges.take() for _ in range(2 * RANGES_PER_BLOCK)]
    assert len(set(taken)) == len(taken)
    assert all((first - FIRST_ID) % IDS_PER_RANGE == 0 for first in taken)
    assert min(taken) > 0x6FFFFFFF
    assert FIRST_ID + N_BLOCKS * RANGES_PER_BLOCK * IDS_PER_RANGE <= 0x7FFFFFFF
    ranges.close()


def test_range_given_back_is_used_again_only_after_all_others() -> None:
    ranges = IdRanges()
    first = ranges.take()
    ranges.give_back(first)
    taken = [ranges.take() for _ in range(RANGES_PER_BLOCK)]
    assert taken[-1] == first
    ranges.close()


def test_two_hosts_never_have_the_same_range() -> None:
    one, other = IdRanges(), IdRanges()
    ours = {one.take() for _ in range(100)}
    theirs = {other.take() for _ in range(100)}
    assert not ours & theirs
    one.close()
    other.close()


def test_threads_never_get_the_same_range() -> None:
    ranges = IdRanges()
    taken: list[int] = []
    threads = [
        threading.Thread(target=lambda: [taken.append(ranges.take()) for _ in range(40)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 320
    ranges.close()


def test_all_taken_is_told_with_what_to_do_and_ends_with_a_close() -> None:
    greedy, late = IdRanges(), IdRanges()
    for _ in range(N_BLOCKS * RANGES_PER_BLOCK):
        greedy.take()
    for ranges in (greedy, late):
        with pytest.raises(
            WebservError, match="all 4032 id ranges of this machine are taken: remove instances"
        ):
            ranges.take()
    greedy.close()
    assert late.take() == FIRST_ID
    late.close()


def test_ranges_of_a_killed_process_are_free_again(locks: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(locks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        theirs = int(holder.stdout.readline())
        ranges = IdRanges()
        assert ranges.take() // (RANGES_PER_BLOCK * IDS_PER_RANGE) != theirs // (
            RANGES_PER_BLOCK * IDS_PER_RANGE
        )
        ranges.close()
        holder.send_signal(signal.SIGKILL)
    ranges = IdRanges()
    assert ranges.take() == FIRST_ID
    ranges.close()
