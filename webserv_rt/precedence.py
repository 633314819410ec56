"""Lets what somebody waits for go before what is done ahead of need or afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Longer, and a host that is never idle would never make a spare nor take anything apart.
LONGEST_WAIT_S: Final = 0.05
QUIET_S: Final = 0.02


class Precedence:
    """Counts launches and resets under way; background threads wait for a gap between them.

    They would be scheduled fairly otherwise, and every hand-over of the interpreter's lock costs up to 5 ms.
    """

    def __init__(self) -> None:
        self._n_under_way = 0
        self._last_end = -QUIET_S
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
                self._last_end = time.monotonic()
                self._changed.notify_all()

    def give_way(self, quiet_s: float = QUIET_S) -> None:
        """Wait until nothing has been under way for `quiet_s`, at most 50 ms.

        Who has just been given an instance sends its first requests in that time.
        """
        deadline = time.monotonic() + LONGEST_WAIT_S
        with self._changed:
            while (now := time.monotonic()) < deadline:
                if not self._n_under_way and now >= self._last_end + quiet_s:
                    return
                until = deadline if self._n_under_way else min(deadline, self._last_end + quiet_s)
                self._changed.wait(until - now)
