"""The owner is killed with -9 at every step of its life; the next one on the pool removes all that it left.

Steps are the native calls of the owner's process, those of the static program that it starts, and what Python
code does to the filesystem. With WSRT_FAULT_STRIDE=1 (`make soak`) every single one; otherwise so many that
the whole takes a minute or two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import leftovers
import pytest
import small_site
from leftovers import CGROUP

from webserv_rt.collector import collect
from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.kernel.cgroup import CgroupHost
from webserv_rt.storage.pool import Pool

OWNER: Final = Path(__file__).with_name("owner.py")
STRIDE: Final = int(os.environ.get("WSRT_FAULT_STRIDE", "0"))
STEPS_PER_PHASE: Final = 16


class OwnerProcess:
    """Runs owner.py, and finds processes that come from it wherever they are."""

    def __init__(self, pool: Path) -> None:
        self._pool = pool
        self._mark = uuid.uuid4().hex
        self.pid = 0

    def run(self, phase: str, kind: str, step: int) -> int | None:
        """Kill it at STEP; returns None when it was, and how many steps there are when it ended by itself."""
        arguments = [str(self._pool), CGROUP, phase, kind, str(step)]
        search_path = [str(OWNER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "WSRT_TEST_MARK": self._mark, "PYTHONPATH": ":".join(search_path)}
        command = [sys.executable, str(OWNER), *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
            self.pid = process.pid
            output, _ = process.communicate(timeout=60)
        if process.returncode == -signal.SIGKILL:
            return None
        assert process.returncode == 0, f"step {step} of {phase}: the owner ended with {process.returncode}"
        return int(output)

    def relatives(self) -> list[str]:
        """Return the processes that share its memory, or that run or ran its static program."""
        marks = (f"WSRT_TEST_MARK={self._mark}".encode(), f"WSRT_FAULTS=/proc/{self.pid}/".encode())
        found = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdecimal() and any(
                    mark in (process / "environ").read_bytes() for mark in marks
                ):
                    found.append(f"{process.name} {(process / 'comm').read_text().strip()}")
        return found


@pytest.fixture(scope="module")
def base(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The small site in the pool."""
    root, spec = small_site.make(tmp_path_factory.mktemp("small"))
    with Host(pool.path, n_networks=1, cgroup_parent=CGROUP) as host:
        host.import_base(str(root), small_site.NAME, site=spec)
    yield small_site.NAME
    with Host(pool.path, n_networks=1, cgroup_parent=CGROUP) as host:
        host.remove_base(small_site.NAME)


@pytest.fixture(scope="module")
def bystander(pool: Pool, base: str) -> Iterator[Instance]:
    """An instance of another owner on the same pool, which lives through all this."""
    with Host(pool.path, n_networks=1, cgroup_parent=CGROUP) as host:
        yield host.launch(base)


def require_alive(instance: Instance) -> None:
    with urllib.request.urlopen(instance.url, timeout=10) as answer:
        assert answer.read().decode() == small_site.PAGE
    assert instance.exec(["/bin/busybox", "cat", "/data/deeper/rows"]).stdout == b"one\ntwo\n"


def steps_to_try(n_steps: int) -> range:
    return range(1, n_steps + 1, STRIDE or max(1, n_steps // STEPS_PER_PHASE))


@pytest.mark.timeout(3600 if STRIDE else 300)
@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        ("open", "host"),
        ("open", "python"),
        ("launch", "host"),
        ("launch", "init"),
        ("launch", "python"),
        ("reset", "host"),
        ("reset", "init"),
        ("reset", "python"),
        ("exec", "host"),
        ("exec", "init"),
        ("remove", "host"),
        ("spare", "host"),
        ("close", "host"),
        ("close", "python"),
    ],
)
def test_next_owner_removes_all_that_a_killed_one_left(
    pool: Pool, bystander: Instance, phase: str, kind: str
) -> None:
    scope = leftovers.Scope((pool.path,))
    owner = OwnerProcess(pool.path)
    with CgroupHost() as cgroups:
        collect(pool, cgroups)
        before = leftovers.take(scope)
        n_steps = owner.run(phase, kind, step=0)
        assert n_steps, f"{phase} has no {kind} steps"
        collect(pool, cgroups)  # what it leaves at its own end
        n_killed = 0
        for step in steps_to_try(n_steps):
            circumstances = f"{phase}: killed at {kind} step {step} of {n_steps}"
            n_killed += owner.run(phase, kind, step) is None
            collect(pool, cgroups)
            leftovers.require_none(scope, before, circumstances)
            require_gone(owner, circumstances)
            require_alive(bystander)
        # Waiting takes more or fewer steps, and threads beside the phase make some: the number varies.
        assert n_killed >= len(steps_to_try(n_steps)) / 2, f"it was killed {n_killed} times only"


def require_gone(owner: OwnerProcess, circumstances: str) -> None:
    deadline = time.monotonic() + 5
    while relatives := owner.relatives():
        assert time.monotonic() < deadline, f"{circumstances}, and left the processes {relatives}"
        time.sleep(0.01)
