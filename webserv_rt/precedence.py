"""Lets what somebody waits for go before what is done ahead of need or afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Longer, and a host that is never idle would never make a spare nor take anything apart.
LONGEST_WAIT_S: Final = 0.05


class Precedence:
    """Counts launches and resets under way; background threads wait for a gap between them.

    They would be scheduled fairly otherwise, and every hand-over of the interpreter's lock costs up to 5 ms.
    """

    def __init__(self) -> None:
        self._n_under_way = 0
        self._changed = threading.Condition()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Go before background work for the length of the block."""
        with self._changed:
            self._n_under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_under_way -= 1
                self._changed.notify_all()

    def give_way(self, quiet_s: float = 0.0) -> None:
        """Wait until nothing has been under way for `quiet_s`, at most 50 ms."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        with self._changed:
            while (remaining_s := deadline - time.monotonic()) > 0:
                if self._n_under_way:
                    self._changed.wait_for(lambda: not self._n_under_way, remaining_s)
                elif not self._changed.wait_for(lambda: self._n_under_way, min(quiet_s, remaining_s)):
                    return
