"""The one place where a C error becomes a Python exception."""

from __future__ import annotations

import errno
import os
from typing import Any

from webserv_rt._native import ffi


class KernelError(OSError):
    """A kernel operation failed: `step` on `object` with `errno`.

    The text reads "mount overlay on instances/17/upper: EBUSY (Device or resource busy)".
    """

    def __init__(self, step: str, object: str, code: int) -> None:
        super().__init__(code, os.strerror(code))
        self.step = step
        self.object = object

    def __str__(self) -> str:
        name = errno.errorcode.get(self.errno or 0, str(self.errno))
        return f"{self.step} on {self.object}: {name} ({self.strerror})"

    def __reduce__(self) -> tuple[type[KernelError], tuple[str, str, int]]:
        return type(self), (self.step, self.object, self.errno or 0)


def new_error() -> Any:
    """Return a zeroed `struct wsrt_error` to hand to one native call."""
    return ffi.new("struct wsrt_error *")


def check(result: int, error: Any) -> int:
    """Return RESULT, or raise what the native call recorded in ERROR when RESULT is negative."""
    if result < 0:
        step, object = (ffi.string(text).decode("utf-8", "replace") for text in (error.step, error.object))
        raise KernelError(step, object, error.code)
    return result
