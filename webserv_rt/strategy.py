"""How a fresh incarnation comes about: `cold` starts one, `standby` hands over one that waits, frozen."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from webserv_rt.command import run_status
from webserv_rt.errors import WebservError
from webserv_rt.incarnation import Incarnation, Workshop
from webserv_rt.precedence import Precedence
from webserv_rt.readiness import await_ready, probe, send_warm_up
from webserv_rt.reaper import Reaper
from webserv_rt.template import Template

log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 1.0


class NotReady(WebservError):
    """A site did not get ready; the text holds the last answer and the ends of the logs."""


class Strategy(Protocol):
    """Where incarnations come from; thread-safe."""

    name: str
    template: Template

    def take(self) -> Incarnation:
        """Return a running incarnation that nobody has used; it may still be getting ready."""

    def close(self) -> None:
        """End what was made ahead of need."""


class Cold:
    """New layers, processes started anew."""

    name = "cold"
    _numbers = itertools.count()

    def __init__(self, workshop: Workshop, template: Template) -> None:
        self.workshop = workshop
        self.template = template

    def take(self) -> Incarnation:
        """Start an incarnation; its services are only just coming up."""
        return Incarnation(self.workshop, self.template, f"{self.template.name}-{next(Cold._numbers)}")

    def close(self) -> None:
        """Nothing was made ahead."""


class Standby:
    """Spares made ready, warmed up and frozen by a thread; one takes over, the thread makes the next."""

    name = "standby"

    def __init__(
        self, workshop: Workshop, template: Template, reaper: Reaper, precedence: Precedence, n_spares: int
    ) -> None:
        self.template = template
        self._cold = Cold(workshop, template)
        self._reaper = reaper
        self._precedence = precedence
        self._spares: deque[Incarnation] = deque()
        self._changed = threading.Condition()
        self._n_spares = n_spares
        self._closed = False
        self._in_making: Incarnation | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._refill, name="webserv_rt-standby", daemon=True)
        self._thread.start()

    def take(self) -> Incarnation:
        """Return a spare, thawed; wait for one if none is there. Raises what keeps spares from being made."""
        with self._changed:
            self._changed.wait_for(lambda: self._spares or self._error is not None or self._closed)
            if not self._spares:
                raise self._error or WebservError("this host is closed")
            spare = self._spares.popleft()
            self._changed.notify_all()
        try:
            spare.thaw()
        except BaseException:
            self._reaper.take(spare)
            raise
        return spare

    def await_spares(self) -> None:
        """Return when all spares are there (benchmarks and tests start from here)."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._spares) >= self._n_spares or self._error or self._closed)
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """End the thread and give the spares to the reaper."""
        with self._changed:
            self._closed = True
            if self._in_making is not None:
                self._in_making.kill()  # not to wait until it is ready
            self._changed.notify_all()
        self._thread.join()
        while self._spares:
            self._reaper.take(self._spares.popleft())

    def _refill(self) -> None:
        while self._wait_for_room():
            self._precedence.give_way()
            try:
                spare = self._make_spare()
            except Exception as error:
                # Whatever it is: without this thread everybody would wait for a spare for ever.
                if not self._closed:
                    log.warning("no spare for %s: %s", self.template.name, error)
                self._publish(None, error)
                self._pause()
                continue
            self._publish(spare, None)

    def _make_spare(self) -> Incarnation:
        spare = self._cold.take()
        try:
            self._begin(spare)
            # Its start must not take the processor from the instance that a spare has just gone to.
            spare.give_way()
            make_ready(spare)
            warm_up(spare)
            spare.freeze()
        except BaseException:
            self._begin(None)
            self._reaper.take(spare)
            raise
        self._begin(None)
        return spare

    def _begin(self, spare: Incarnation | None) -> None:
        with self._changed:
            self._in_making = spare
            if spare is not None and self._closed:
                raise WebservError("this host is closed")

    def _wait_for_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._spares) < self._n_spares)
            return not self._closed

    def _publish(self, spare: Incarnation | None, error: Exception | None) -> None:
        with self._changed:
            self._error = error
            if spare is not None:
                self._spares.append(spare)
            self._changed.notify_all()

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, RETRY_PAUSE_S)


def make_ready(incarnation: Incarnation, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Wait until the site answers as its spec says, if it has not yet, as long as it is wanted.

    Raises `NotReady` with the ends of the logs.
    """
    if incarnation.is_ready and incarnation.is_alive():
        return
    site = incarnation.template.site
    answer = await_ready(
        site,
        incarnation.network,
        run=lambda arguments, timeout_s: run_status(incarnation, arguments, timeout_s),
        is_alive=lambda: is_wanted() and incarnation.is_alive(),
        deadline=time.monotonic() + site.ready.timeout_s,
    )
    if answer is not None:
        raise NotReady(
            f"{site.name} did not get ready within {site.ready.timeout_s:g} s: {answer}\n"
            f"{incarnation.log_tail()}"
        )
    incarnation.is_ready = True


def ask(incarnation: Incarnation) -> str | None:
    """Probe the site once as its spec says; return what is wrong with the answer, or None."""
    site = incarnation.template.site
    return probe(
        site,
        incarnation.network,
        lambda arguments, timeout_s: run_status(incarnation, arguments, timeout_s),
        site.ready.timeout_s,
    )


def warm_up(incarnation: Incarnation) -> None:
    """Send the site's warm-up requests; raises `NotReady` when one is not answered as the spec says."""
    site = incarnation.template.site
    problem = send_warm_up(site, incarnation.network, site.warm)
    if problem is not None:
        raise NotReady(f"{site.name}: {problem}\n{incarnation.log_tail()}")
