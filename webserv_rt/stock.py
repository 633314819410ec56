"""A stock of network namespaces, made ahead of need: 0.5 ms each that no reset has to wait for."""

from __future__ import annotations

import threading
from collections import deque

from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.error import KernelError
from webserv_rt.kernel.namespace import new_network_namespace


class NetworkStock:
    """Keeps `size` fresh namespaces ready, refilled by a thread of its own."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ready: deque[Descriptor] = deque()
        self._wanted = threading.Semaphore(size)
        self._closed = False
        self._thread = threading.Thread(target=self._refill, name="webserv_rt-network-stock", daemon=True)
        self._thread.start()

    def take(self) -> Descriptor:
        """Return a namespace that nobody has used; it is made on the spot when the stock is empty."""
        try:
            namespace = self._ready.popleft()
        except IndexError:
            return new_network_namespace()
        self._wanted.release()
        return namespace

    def close(self) -> None:
        """End the thread and let go of what is in stock."""
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
                self._ready.append(new_network_namespace())
            except KernelError:
                # Whoever takes next makes its own and gets the error where it can be told.
                self._wanted.release()
                if self._wait_a_little():
                    return

    def _wait_a_little(self) -> bool:
        """Pause after a failure; return whether the stock was closed meanwhile."""
        threading.Event().wait(0.1)
        return self._closed
