"""Takes ended incarnations apart, off the critical path of a reset."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Final

from webserv_rt.incarnation import Incarnation
from webserv_rt.kernel.error import KernelError
from webserv_rt.precedence import Precedence

log = logging.getLogger(__name__)

N_ATTEMPTS: Final = 3


class Reaper:
    """A thread that disposes of incarnations one after the other."""

    def __init__(self, precedence: Precedence) -> None:
        self._precedence = precedence
        self._queue: queue.SimpleQueue[Incarnation | None] = queue.SimpleQueue()
        self._pending = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="webserv_rt-reaper", daemon=True)
        self._thread.start()

    def take(self, incarnation: Incarnation) -> None:
        """Kill the incarnation now and take it apart later; a kill that fails is tried again then."""
        try:
            # The end of a large process is work of its own, which must not delay whoever comes next.
            incarnation.give_way()
            incarnation.kill()
        except KernelError as error:
            log.warning("killing %s: %s", incarnation.name, error)
        with self._changed:
            if not self._closed:
                self._pending += 1
                self._queue.put(incarnation)
                return
        self._dispose_of(incarnation)

    def drain(self) -> None:
        """Return when everything taken so far is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending == 0)

    def close(self) -> None:
        """Finish what was taken and end the thread; what is taken after that is taken apart by its giver."""
        with self._changed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (incarnation := self._queue.get()) is not None:
            self._precedence.give_way()
            self._dispose_of(incarnation)
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()

    def _dispose_of(self, incarnation: Incarnation) -> None:
        for attempt in range(1, N_ATTEMPTS + 1):
            try:
                incarnation.dispose()
                return
            except Exception:
                # What cannot be removed is under the owner's directory and cgroup, and goes with them.
                log.exception("taking %s apart, attempt %d of %d", incarnation.name, attempt, N_ATTEMPTS)
