"""Processes started from C, held by pidfd (native/spawn.h)."""

from __future__ import annotations

import os
import select
import signal
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from webserv_rt._native import ffi, lib
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.error import KernelError, check, new_error
from webserv_rt.kernel.plan import Plan

# What `wait` returns when the embedding program reaped the process first and the status is lost.
UNKNOWN_STATUS: Final = 255

_STATUS: Final = struct.Struct("i")

INIT_PROGRAM: Final = Path(__file__).resolve().parent.parent / "_init" / "wsrt-init"


class Process:
    """A child of this process, held by its pidfd."""

    def __init__(self, pid: int, pidfd: Descriptor, control: Descriptor | None) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._control = control
        self._status: int | None = None
        self._reaping = threading.Lock()

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal; nothing happens when the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd.fileno(), signal_number)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the end and reap; return the exit status (128 + signal), or None after `timeout_s`.

        Where the embedding program reaps every child, or ignores SIGCHLD, pid 1's is `UNKNOWN_STATUS`.
        """
        if self._status is None and self._ended_within(timeout_s):
            with self._reaping:
                if self._status is None:
                    self._status = self._reap()
        return self._status

    def _reap(self) -> int:
        try:
            result = os.waitid(os.P_PIDFD, self.pidfd.fileno(), os.WEXITED)
        except ChildProcessError:
            return self._reported_status()
        assert result is not None
        return result.si_status if result.si_code == os.CLD_EXITED else 128 + result.si_status

    def _reported_status(self) -> int:
        report = b"" if self._control is None else os.read(self._control.fileno(), _STATUS.size)
        return int(_STATUS.unpack(report)[0]) if len(report) == _STATUS.size else UNKNOWN_STATUS

    def _ended_within(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self.pidfd.fileno(), select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))

    def close(self) -> None:
        """Let go of the descriptors (after `wait`)."""
        self.pidfd.close()
        if self._control is not None:
            self._control.close()


def open_init_program() -> Descriptor:
    """Open our static program; raise KernelError when the package was not built."""
    try:
        return Descriptor(os.open(INIT_PROGRAM, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        raise KernelError(
            "open the static pid-1 program (run `pip install .`)", str(INIT_PROGRAM), 2
        ) from None


def spawn(program: Descriptor, plan: Plan, *, new_instance: bool, cgroup: Descriptor | None) -> Process:
    """Start our static program with a plan; return once its privileged part is done, or raise KernelError.

    `cgroup` is a cgroup v2 directory that the process is born in.
    """
    encoded = plan.encode()
    fds = ffi.new("int[]", [descriptor.fileno() for descriptor in plan.descriptors])
    encoded_bytes = ffi.from_buffer("unsigned char[]", encoded)
    request = ffi.new(
        "struct wsrt_spawn *",
        {
            "program_fd": program.fileno(),
            "plan": encoded_bytes,
            "plan_bytes": len(encoded),
            "fds": fds,
            "n_fds": len(plan.descriptors),
            "cgroup_fd": -1 if cgroup is None else cgroup.fileno(),
            "flags": lib.WSRT_SPAWN_NEW_INSTANCE if new_instance else 0,
        },
    )
    result = ffi.new("struct wsrt_process *")
    error = new_error()
    check(lib.wsrt_spawn(request, result, error), error)
    control = None if result.control_fd < 0 else Descriptor(result.control_fd)
    return Process(result.pid, Descriptor(result.pidfd), control)
