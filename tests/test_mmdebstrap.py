"""Building a root filesystem: nothing of it outlives the process that asked for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from webserv_rt.errors import WebservError
from webserv_rt.mmdebstrap import run_confined

# In mmdebstrap's place a command that mounts in the target and stays: what matters is what becomes of it.
OWNER = """
import sys
from webserv_rt.mmdebstrap import run_confined
run_confined(["sh", "-c", "mount -t tmpfs none $0/proc && echo mounted && exec sleep 1000", sys.argv[1]],
             lambda line: print(line, flush=True))
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="needs util-linux"),
]


def processes_with(word: str) -> list[str]:
    found = subprocess.run(["pgrep", "--full", "--list-full", word], capture_output=True, text=True)
    return found.stdout.splitlines()


def test_builder_dies_with_a_killed_owner_and_its_mounts_with_it(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "mounted\n"
        assert not (tmp_path / "proc").is_mount(), "the host sees the builder's mounts"
        owner.kill()
    deadline = time.monotonic() + 5
    while left := processes_with(str(tmp_path)):
        assert time.monotonic() < deadline, f"left {left}"
        time.sleep(0.01)
    (tmp_path / "proc").rmdir()


def test_failure_shows_the_last_lines() -> None:
    lines: list[str] = []
    with pytest.raises(WebservError, match="no such package"):
        run_confined(["sh", "-c", "echo reading; echo no such package >&2; exit 3"], lines.append)
    assert lines == ["reading", "no such package"]
