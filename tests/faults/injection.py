"""Make one native call after the other fail, and look after each what is left behind."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import leftovers
from webserv_rt._native import ffi, lib

from webserv_rt.errors import WebservError
from webserv_rt.kernel.error import KernelError

Made = TypeVar("Made")

IS_FAULTS_BUILD: Final = hasattr(lib, "wsrt_faults_arm")

# The errors each sweep is repeated with: the one usual for the function, and some that code might take for an
# answer of another kind. (EINTR stops only at calls that a signal can interrupt.)
CODES: Final = (0, errno.EINTR, errno.EPERM, errno.ENOMEM)


@dataclass(frozen=True)
class Place:
    """Where calls are counted: in this process, or in the static program."""

    number: int

    def arm(self, nth: int, action: int, code: int = 0) -> None:
        """Let the NTH call from now on be the one."""
        assert lib.wsrt_faults_arm(self.number, nth, action, code) == 0

    def disarm(self) -> None:
        """Let all calls be made."""
        lib.wsrt_faults_arm(self.number, 0, 0, 0)

    def count(self) -> int:
        """Return how many calls were made since it was armed."""
        return int(lib.wsrt_faults_count(self.number))

    @property
    def is_hit(self) -> bool:
        """Whether the armed call was come to."""
        return bool(lib.wsrt_faults_is_hit(self.number))

    @property
    def where(self) -> str:
        """Where in the C core that call is."""
        return _text(lib.wsrt_faults_where(self.number))


def _text(pointer: Any) -> str:
    return bytes(ffi.string(pointer)).decode()


HOST: Final = Place(lib.WSRT_FAULT_IN_HOST if IS_FAULTS_BUILD else 0)
INIT: Final = Place(lib.WSRT_FAULT_IN_INIT if IS_FAULTS_BUILD else 1)
FAIL: Final[int] = lib.WSRT_FAULT_FAIL if IS_FAULTS_BUILD else 0
DIE: Final[int] = lib.WSRT_FAULT_DIE if IS_FAULTS_BUILD else 1
KILL_OWNER: Final[int] = lib.WSRT_FAULT_KILL_OWNER if IS_FAULTS_BUILD else 2


@dataclass(frozen=True)
class Fault:
    """One call that was made to fail, and how the operation took it."""

    nth: int
    where: str
    error: Exception | None

    def __str__(self) -> str:
        return f"call {self.nth} ({self.where}) failing gave {self.error or 'success'}"


def sweep(
    operation: Callable[[], Made],
    *,
    scope: leftovers.Scope,
    prepare: Callable[[], object] = lambda: None,
    undo: Callable[[Made], object] = lambda made: None,
    clean_up: Callable[[], object] = lambda: None,
    place: Place = HOST,
    action: int = FAIL,
    code: int = 0,
) -> list[Fault]:
    """Make the first call fail, then the second, until OPERATION comes through without reaching one.

    Each time, after PREPARE, it has to succeed (then UNDO is called), or to raise an error that names step
    and object. After that, and after CLEAN_UP, which is for what a failure may leave, nothing may be there
    that was not there before. Only calls of OPERATION fail. Returns the faults.
    """
    place.disarm()  # the counters' memory is there from now on, as is
    prepare()
    undo(operation())  # whatever else is made once and kept
    clean_up()
    faults: list[Fault] = []
    for nth in itertools.count(1):
        before = leftovers.take(scope)
        prepare()
        place.arm(nth, action, code)
        error: Exception | None = None
        try:
            made = operation()
        except (KernelError, WebservError) as caught:
            error = caught.with_traceback(None)
        finally:
            fault = Fault(nth, place.where, error)
            is_hit = place.is_hit
            place.disarm()
        if error is None:
            undo(made)
        clean_up()
        leftovers.require_none(scope, before, str(fault))
        if not is_hit:
            assert error is None, f"without any fault: {error}"
            break
        _require_named(fault)
        faults.append(fault)
    return faults


def _require_named(fault: Fault) -> None:
    """A KernelError says which step failed on what, with an errno; any other error has a text."""
    error = fault.error
    if isinstance(error, KernelError):
        assert error.step and error.object and error.errno, f"{fault}: no step, object or errno"
    elif error is not None:
        assert str(error), f"{fault}: no text"
