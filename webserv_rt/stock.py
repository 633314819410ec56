"""A stock of what instances are made of, made ahead of need: no reset has to wait for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from webserv_rt.errors import WebservError


class _Closable(Protocol):
    def close(self) -> None: ...


Item = TypeVar("Item", bound=_Closable)


class Stock(Generic[Item]):
    """Keeps `size` fresh items ready, refilled by a thread of its own."""

    def __init__(self, make: Callable[[], Item], size: int) -> None:
        self._make = make
        self._ready: deque[Item] = deque()
        self._wanted = threading.Semaphore(size)
        self._closed = False
        self._thread = threading.Thread(target=self._refill, name="webserv_rt-stock", daemon=True)
        self._thread.start()

    def take(self) -> Item:
        """Return an item that nobody has used; it is made on the spot when the stock is empty."""
        try:
            item = self._ready.popleft()
        except IndexError:
            return self._make()
        self._wanted.release()
        return item

    def close(self) -> None:
        """End the thread and close what is in stock."""
        self._closed = True
        self._wanted.release()
        self._thread.join()
        while self._ready:
            self._ready.popleft().close()

    def _refill(self) -> None:
        while True:
            self._wanted.acquire()
            if self._closed:
                return
            try:
                self._ready.append(self._make())
            except (OSError, WebservError):
                # Whoever takes next makes its own and gets the error where it can be told.
                self._wanted.release()
                if self._wait_a_little():
                    return

    def _wait_a_little(self) -> bool:
        """Pause after a failure; return whether the stock was closed meanwhile."""
        threading.Event().wait(0.1)
        return self._closed
