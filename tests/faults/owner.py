"""A process that owns an instance and is killed at one step of one phase; run by test_owner_killed.py.

Arguments: pool, cgroup parent, phase, kind of step, number of the step. Writes how many such steps the phase
has if it lives to see its end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import small_site
from injection import HOST, INIT, KILL_OWNER, Place

from webserv_rt.host import Host

NEVER: Final = 1 << 40

PYTHON_STEPS: Final = {
    "open",
    "fcntl.flock",
    *(
        f"os.{name}"
        for name in [
            "mkdir",
            "link",
            "symlink",
            "rename",
            "chmod",
            "chown",
            "utime",
            "remove",
            "rmdir",
            "setxattr",
        ]
    ),
}


class PythonSteps:
    """Counts what Python code does to the filesystem, and ends this process before the NTH such step."""

    def __init__(self) -> None:
        self.nth = 0
        self.count = 0
        sys.addaudithook(self._on_event)

    def arm(self, nth: int) -> None:
        self.nth, self.count = nth, 0

    def _on_event(self, event: str, _: object) -> None:
        if self.nth and event in PYTHON_STEPS:
            self.count += 1
            if self.count == self.nth:
                os.kill(os.getpid(), signal.SIGKILL)


def die_when_hit(place: Place) -> None:
    """Die as soon as another process has come to the armed call, where it waits for that."""
    while not place.is_hit:
        time.sleep(0.0005)
    os.kill(os.getpid(), signal.SIGKILL)


class Owner:
    """The phases of an owner's life, in order; what a phase needs is there before it."""

    def __init__(self, pool: Path, cgroup_parent: str) -> None:
        self._pool, self._cgroup_parent = pool, cgroup_parent
        self.host: Host
        self.phases: dict[str, Callable[[], object]] = {
            "open": self._open,
            "launch": self._launch,
            "reset": self._reset,
            "exec": lambda: self.instance.exec(["/bin/busybox", "true"]),
            "remove": self._remove,
            "spare": self._launch_with_spare,
            "close": lambda: self.host.close(),
        }

    def _open(self) -> None:
        self.host = Host(self._pool, n_networks=1, cgroup_parent=self._cgroup_parent)

    def _launch(self) -> None:
        self.instance = self.host.launch(small_site.NAME)

    def _reset(self) -> None:
        self.instance.reset()
        self.host.reaper.drain()

    def _remove(self) -> None:
        self.instance.remove()
        self.host.reaper.drain()

    def _launch_with_spare(self) -> None:
        self.instance = self.host.launch(small_site.NAME, strategy="standby")
        self.host.await_spares(small_site.NAME)


def main() -> None:
    pool, cgroup_parent, phase, kind, step = sys.argv[1:]
    owner = Owner(Path(pool), cgroup_parent)
    python_steps = PythonSteps()
    nth = int(step) or NEVER
    for name, run in owner.phases.items():
        if name == phase:
            break
        run()
    if kind == "python":
        python_steps.arm(nth)
        run()
        n_steps = python_steps.count
    else:
        place = {"host": HOST, "init": INIT}[kind]
        place.arm(nth, KILL_OWNER)
        threading.Thread(target=die_when_hit, args=[place], daemon=True).start()
        run()
        n_steps = place.count()
    sys.stdout.write(str(n_steps))


main()
