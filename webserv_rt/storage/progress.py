"""How far an import or a verification has come."""

from __future__ import annotations

from collections.abc import Callable

# Called with the bytes done and the bytes in all (None: not known).
ProgressCallback = Callable[[int, "int | None"], None]

_STEP_BYTES = 1 << 20


class Progress:
    """Adds up bytes and reports to CALLBACK about once per MiB, so that many small files cost nothing."""

    def __init__(self, callback: ProgressCallback | None, total: int | None = None) -> None:
        self._callback = callback
        self._done = 0
        self._next = 0
        self.total = total

    def advance(self, n_bytes: int) -> None:
        """Count N_BYTES more."""
        self._done += n_bytes
        if self._callback is not None and self._done >= self._next:
            self._next = self._done + _STEP_BYTES
            self._callback(self._done, self.total)

    def finish(self) -> None:
        """Report the end: all bytes done."""
        if self._callback is not None:
            self._callback(self._done, self.total if self.total is not None else self._done)
