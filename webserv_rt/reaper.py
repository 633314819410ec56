"""Takes ended incarnations apart, off the critical path of a reset."""

from __future__ import annotations

import logging
import queue
import threading

from webserv_rt.incarnation import Incarnation

log = logging.getLogger(__name__)


class Reaper:
    """A thread that disposes of incarnations one after the other."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Incarnation | None] = queue.SimpleQueue()
        self._pending = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="webserv_rt-reaper", daemon=True)
        self._thread.start()

    def take(self, incarnation: Incarnation) -> None:
        """Kill the incarnation now and take it apart later."""
        incarnation.kill()
        with self._changed:
            self._pending += 1
        self._queue.put(incarnation)

    def drain(self) -> None:
        """Return when everything taken so far is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending == 0)

    def close(self) -> None:
        """Finish what was taken and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (incarnation := self._queue.get()) is not None:
            try:
                incarnation.dispose()
            except Exception:
                # What cannot be removed now is under the owner's directory and cgroup: gc finds it there.
                log.exception("could not take %s apart; `webserv-rt gc` will", incarnation.name)
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()
