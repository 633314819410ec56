"""Run a command inside an incarnation, in all its namespaces, its cgroup and under its confinement."""

from __future__ import annotations

import array
import errno
import fcntl
import itertools
import os
import selectors
import signal
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from webserv_rt.errors import WebservError
from webserv_rt.incarnation import Incarnation
from webserv_rt.kernel import plan as steps
from webserv_rt.kernel.cgroup import Entry
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.error import KernelError
from webserv_rt.kernel.inner_group import InnerGroup, make_inner_group
from webserv_rt.kernel.plan import Plan, Program
from webserv_rt.kernel.process import Process, spawn
from webserv_rt.template import KEPT_CAPABILITIES

_OUTER_NAMESPACES: Final = (
    steps.CLONE_NEWNS | steps.CLONE_NEWPID | steps.CLONE_NEWNET | steps.CLONE_NEWIPC | steps.CLONE_NEWUTS
)
_PIPE_BYTES: Final = 65536
# More would let whatever runs inside fill the memory of the host.
MAX_OUTPUT_BYTES: Final = 256 << 20

_numbers = itertools.count()


@dataclass(frozen=True)
class ExecResult:
    """How a command ended: exit status (128 + signal when killed), standard output and error."""

    status: int
    stdout: bytes
    stderr: bytes


class CommandTimeout(WebservError):
    """A command did not end in time and was killed."""


class CommandStopped(WebservError):
    """A command was killed because nobody waits for it any more."""


class Stop:
    """Ends a command from another thread: kills it with all it started. To be closed when it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))

    def set(self) -> None:
        """End the command; nothing happens when it has ended."""
        with self._lock, suppress(ValueError):
            os.eventfd_write(self._event.fileno(), 1)

    def fileno(self) -> int:
        """Return what becomes readable when the command is to end."""
        return self._event.fileno()

    def close(self) -> None:
        """Let go of the descriptor."""
        with self._lock:
            self._event.close()


def run(
    incarnation: Incarnation,
    program: Program,
    stdin: bytes,
    timeout_s: float | None,
    stop: Stop | None = None,
) -> ExecResult:
    """Run a program to its end, feeding `stdin`; what it leaves in the background goes on.

    Raises `CommandTimeout` after `timeout_s`: then it is killed with all that it started.
    """
    with ExitStack() as held:
        pipes = [_pipe(held, incarnation, program.uid) for _ in range(3)]
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = pipes
        stdio: list[Descriptor | None] = [in_read, out_write, err_write]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        is_bounded = deadline is not None or stop is not None
        process = held.enter_context(_started(incarnation, program, stdio, is_bounded=is_bounded))
        for inner in (in_read, out_write, err_write):
            inner.close()
        try:
            stdout, stderr = _exchange(process, in_write, stdin, out_read, err_read, deadline, stop)
        except TimeoutError:
            raise CommandTimeout(
                f"{program.arguments[0]} did not end within {timeout_s:g} s and was killed"
            ) from None
        status = process.wait()
        assert status is not None
        return ExecResult(status, stdout, stderr)


def run_status(incarnation: Incarnation, arguments: tuple[str, ...], timeout_s: float) -> int | None:
    """Run a command as root with its output thrown away; return its exit status, None after `timeout_s`."""
    program = incarnation.template.program(arguments)
    try:
        with _started(incarnation, program, [None, None, None], is_bounded=True) as process:
            status = process.wait(timeout_s)
            if status is None:
                raise TimeoutError
            return status
    except TimeoutError:
        return None


@contextmanager
def _started(
    incarnation: Incarnation, program: Program, stdio: list[Descriptor | None], *, is_bounded: bool
) -> Iterator[Process]:
    """Start a program inside for the length of the block, left by an error, it is killed.

    With `is_bounded` it gets a cgroup of its own, and all that it started is killed.
    """
    with ExitStack() as held:
        with incarnation.kept(), ExitStack() as starting:
            entry = starting.enter_context(incarnation.cgroup.open_entry())
            group: InnerGroup | None = None
            if is_bounded:
                group = make_inner_group(incarnation.cgroup, entry, f"exec-{next(_numbers)}")
                held.callback(group.remove)
            process = _spawn(incarnation, program, stdio, entry if group is None else group.entry)
        held.callback(process.close)
        try:
            yield process
        except BaseException:
            if group is not None:
                group.kill()
            process.kill(signal.SIGTERM)
            process.wait()
            raise


def _spawn(
    incarnation: Incarnation,
    program: Program,
    stdio: list[Descriptor | None],
    entry: Entry,
) -> Process:
    plan = Plan()
    plan.enter(incarnation.process.pidfd, _OUTER_NAMESPACES)
    plan.fork(entry.born_in)
    for tasks in entry.tasks:
        plan.join_cgroup(tasks)
    # Only now: a process may not be born in, or join, a group that its cgroup namespace does not show.
    plan.enter(incarnation.process.pidfd, steps.CLONE_NEWCGROUP)
    plan.open_files(incarnation.template.profile.open_files)
    plan.confine(incarnation.userns, KEPT_CAPABILITIES)
    plan.become(program, stdio)
    try:
        return spawn(incarnation.workshop.init_program, plan, new_instance=False, cgroup=None)
    except KernelError as error:
        if error.errno in (errno.EPIPE, errno.ETIMEDOUT):
            reason = "something in the instance killed or stopped it, or the instance ended, before it ran"
            raise WebservError(f"{program.arguments[0]}: {reason}") from error
        if incarnation.is_alive():
            raise
        raise WebservError(
            f"{program.arguments[0]}: the instance was reset or has ended meanwhile"
        ) from error


def _pipe(held: ExitStack, incarnation: Incarnation, uid: int) -> tuple[Descriptor, Descriptor]:
    """Make a pipe whose inner end the user `uid` can also open by name (/dev/stdout)."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    ends = held.enter_context(Descriptor(read_fd)), held.enter_context(Descriptor(write_fd))
    os.fchown(write_fd, incarnation.root_id + uid, -1)
    return ends


def _exchange(
    process: Process,
    in_write: Descriptor,
    stdin: bytes,
    out_read: Descriptor,
    err_read: Descriptor,
    deadline: float | None,
    stop: Stop | None,
) -> tuple[bytes, bytes]:
    """Feed standard input and collect both outputs until the process ends."""
    outputs: dict[int, bytearray] = {out_read.fileno(): bytearray(), err_read.fileno(): bytearray()}
    result = (outputs[out_read.fileno()], outputs[err_read.fileno()])
    remaining = memoryview(stdin)
    end = process.pidfd.fileno()
    with selectors.DefaultSelector() as selector:
        for fd in outputs:
            os.set_blocking(fd, False)
        for fd in (*outputs, end):
            selector.register(fd, selectors.EVENT_READ)
        if stop is not None:
            selector.register(stop.fileno(), selectors.EVENT_READ)
        if remaining:
            os.set_blocking(in_write.fileno(), False)
            selector.register(in_write.fileno(), selectors.EVENT_WRITE)
        else:
            in_write.close()
        while end in selector.get_map():
            timeout_s = None if deadline is None else deadline - time.monotonic()
            if timeout_s is not None and timeout_s <= 0:
                raise TimeoutError
            for key, _ in selector.select(timeout_s):
                if key.fd == end:
                    selector.unregister(end)
                elif stop is not None and key.fd == stop.fileno():
                    raise CommandStopped("a command was killed: nobody waits for it any more")
                elif key.fd in outputs:
                    if _read_some(key.fd, _PIPE_BYTES, outputs[key.fd]) == 0:
                        selector.unregister(key.fd)
                else:
                    remaining = _write_some(key.fd, remaining)
                    if not remaining:
                        selector.unregister(key.fd)
                        in_write.close()
    # Not to the end of file: what was left in the background may hold the pipes open for ever.
    for fd, output in outputs.items():
        n_waiting = _n_waiting(fd)
        while n_waiting > 0 and (n_read := _read_some(fd, n_waiting, output)):
            n_waiting -= n_read
    return bytes(result[0]), bytes(result[1])


def _read_some(fd: int, n_bytes: int, output: bytearray) -> int | None:
    """Return how much was read, 0 at the end, None when another reader inside has taken what was there."""
    try:
        chunk = os.read(fd, n_bytes)
    except BlockingIOError:
        return None
    output += chunk
    if len(output) > MAX_OUTPUT_BYTES:
        raise WebservError(
            f"a command wrote more than {MAX_OUTPUT_BYTES >> 20} MiB: let it write to a file inside"
        )
    return len(chunk)


def _write_some(fd: int, data: memoryview) -> memoryview:
    try:
        return data[os.write(fd, data[:_PIPE_BYTES]) :]
    except BrokenPipeError:
        return data[:0]


def _n_waiting(fd: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]
