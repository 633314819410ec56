"""Run a command inside an incarnation, in all its namespaces, its cgroup and under its confinement."""

from __future__ import annotations

import os
import selectors
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from webserv_rt.errors import WebservError
from webserv_rt.incarnation import Incarnation
from webserv_rt.kernel import plan as steps
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.plan import Plan, Program
from webserv_rt.kernel.process import Process, spawn
from webserv_rt.template import KEPT_CAPABILITIES

_ALL_NAMESPACES: Final = (
    steps.CLONE_NEWNS
    | steps.CLONE_NEWPID
    | steps.CLONE_NEWNET
    | steps.CLONE_NEWIPC
    | steps.CLONE_NEWUTS
    | steps.CLONE_NEWCGROUP
)
_PIPE_BYTES: Final = 65536


@dataclass(frozen=True)
class ExecResult:
    """How a command ended: exit status (128 + signal when killed), standard output and error."""

    status: int
    stdout: bytes
    stderr: bytes


class CommandTimeout(WebservError):
    """A command did not end in time and was killed."""


def start(incarnation: Incarnation, program: Program, stdio: list[Descriptor | None]) -> Process:
    """Start a program inside; the process returned ends as the program does."""
    with ExitStack() as held:
        entry = held.enter_context(incarnation.cgroup.open_entry())
        plan = Plan()
        for tasks in entry.tasks:
            plan.join_cgroup(tasks)
        plan.enter(incarnation.process.pidfd, _ALL_NAMESPACES)
        plan.open_files(incarnation.template.profile.open_files)
        plan.confine(incarnation.userns, KEPT_CAPABILITIES)
        plan.run(program, stdio)
        return spawn(incarnation.workshop.init_program, plan, new_instance=False, cgroup=entry.born_in)


def run(incarnation: Incarnation, program: Program, stdin: bytes, timeout_s: float | None) -> ExecResult:
    """Run a program to its end, feeding `stdin`; raises `CommandTimeout` after `timeout_s`."""
    with ExitStack() as held:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        ends = [(held.enter_context(Descriptor(r)), held.enter_context(Descriptor(w))) for r, w in pipes]
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = ends
        process = start(incarnation, program, [in_read, out_write, err_write])
        held.callback(process.close)
        for inner in (in_read, out_write, err_write):
            inner.close()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            stdout, stderr = _exchange(in_write, stdin, out_read, err_read, deadline)
            status = process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            status = None
        if status is None:
            process.kill()
            process.wait()
            raise CommandTimeout(f"{program.arguments[0]} did not end within {timeout_s:g} s and was killed")
        return ExecResult(status, stdout, stderr)


def run_status(incarnation: Incarnation, arguments: tuple[str, ...]) -> int:
    """Run a command as root with its output thrown away; return its exit status."""
    process = start(incarnation, incarnation.template.program(arguments), [None, None, None])
    status = process.wait()
    process.close()
    assert status is not None
    return status


def _exchange(
    in_write: Descriptor, stdin: bytes, out_read: Descriptor, err_read: Descriptor, deadline: float | None
) -> tuple[bytes, bytes]:
    """Feed standard input and collect both outputs until all three are closed."""
    outputs: dict[int, bytearray] = {out_read.fileno(): bytearray(), err_read.fileno(): bytearray()}
    result = (outputs[out_read.fileno()], outputs[err_read.fileno()])
    remaining = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for fd in outputs:
            selector.register(fd, selectors.EVENT_READ)
        if remaining:
            os.set_blocking(in_write.fileno(), False)
            selector.register(in_write.fileno(), selectors.EVENT_WRITE)
        else:
            in_write.close()
        while selector.get_map():
            timeout_s = None if deadline is None else deadline - time.monotonic()
            if timeout_s is not None and timeout_s <= 0:
                raise TimeoutError
            for key, _ in selector.select(timeout_s):
                if key.fd in outputs:
                    chunk = os.read(key.fd, _PIPE_BYTES)
                    outputs[key.fd] += chunk
                    if not chunk:
                        selector.unregister(key.fd)
                    continue
                try:
                    remaining = remaining[os.write(key.fd, remaining[:_PIPE_BYTES]) :]
                except BrokenPipeError:
                    remaining = remaining[:0]
                if not remaining:
                    selector.unregister(key.fd)
                    in_write.close()
    return bytes(result[0]), bytes(result[1])
