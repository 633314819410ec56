"""An instance: one running copy of a base, reset at will; what stays the same across resets."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal

from webserv_rt import command
from webserv_rt.changes import Changes, find_changes
from webserv_rt.command import ExecResult, Stop
from webserv_rt.errors import WebservError
from webserv_rt.incarnation import Incarnation
from webserv_rt.kernel.gateway import Backend, PortListener
from webserv_rt.statistics import InstanceStatistics, measure
from webserv_rt.storage.errors import PoolFull
from webserv_rt.storage.pool import INSTANCE_BYTES
from webserv_rt.strategy import NotReady, Strategy, make_ready

if TYPE_CHECKING:
    from webserv_rt.host import Host

log = logging.getLogger(__name__)

State = Literal["created", "starting", "ready", "stopped", "failed", "removed"]
MAX_LOG_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Timing:
    """How long the last launch or reset took, in milliseconds.

    `engine_ms` is the runtime's own share (hold, kill, layers, namespaces, spawn; for standby: thaw and
    switch); `ready_ms` runs from the call until the site answered as its spec says.
    """

    engine_ms: float
    ready_ms: float


class Instance:
    """A running copy of a base. Its id, port and place in a world stay; what runs behind them changes.

    Thread-safe: one operation at a time, others wait. Use as a context manager, or call `remove()`.
    """

    def __init__(
        self, host: Host, name: str, base_name: str, strategy: Strategy, address: str, port: int
    ) -> None:
        self.host = host
        self.name = name
        self.base_name = base_name
        self.strategy = strategy
        self.state: State = "created"
        self.timing: Timing | None = None
        self._address = address
        self._lock = threading.RLock()
        self._incarnation: Incarnation | None = None
        self._is_to_go = False
        self._site = strategy.template.site
        self.backend: Backend = host.gateway.add_backend()
        try:
            self._listener: PortListener = host.gateway.listen(self.backend, self._site.port, address, port)
        except BaseException:
            self.backend.close()
            raise

    @property
    def port(self) -> int:
        """The port on the host that leads to the site's port inside."""
        return self._listener.port

    @property
    def url(self) -> str:
        """The site's address through the per-instance port."""
        return f"http://{self._address}:{self.port}/"

    def start(self) -> None:
        """Start the services; connections are held until `wait_ready` finds the site ready."""
        with self._lock:
            if self._incarnation is not None:
                raise WebservError(f"instance {self.name} runs already: reset it, or stop it first")
            self._require_not_removed()
            self._replace(time.perf_counter())

    def wait_ready(self) -> None:
        """Wait until the site answers as its spec says, then let connections through.

        Raises `NotReady` with the ends of the logs; the instance is then stopped and `failed`.
        """
        with self._lock:
            self._open_when_ready(self._running())

    def launch(self) -> Timing:
        """Start and wait until ready."""
        with self._lock, self.host.precedence.claimed():
            began = time.perf_counter()
            self.start()
            return self._finish(began)

    def reset(self) -> Timing:
        """Put the instance back to the start state, ready; connections that arrive meanwhile wait.

        Works from any state but removed. When it fails, nothing of the instance runs any more and the error
        says why; reset may be called again.
        """
        with self._lock, self.host.precedence.claimed():
            self._require_not_removed()
            began = time.perf_counter()
            self._replace(began)
            return self._finish(began)

    def stop(self) -> None:
        """End the services in good order (their stop signal, then the site's time-out, then a kill)."""
        with self._lock:
            incarnation = self._running()
            self.backend.hold()
            try:
                incarnation.stop()
            finally:
                self._let_go("stopped")

    def remove(self) -> None:
        """End the instance and give everything back; removing twice is harmless.

        Does not wait for what gets ready at the time: `launch` and the like then raise in their thread.
        """
        if self.host.is_forked:
            return
        self._is_to_go = True
        incarnation = self._incarnation
        if self.state == "starting" and incarnation is not None:
            with suppress(WebservError), incarnation.kept():
                incarnation.kill()
        with self._lock:
            if self.state == "removed":
                return
            with ExitStack() as ended:
                ended.callback(self.host.forget, self)
                ended.callback(self.backend.close)
                ended.callback(self._listener.close)
                self._let_go("removed")

    def exec(
        self,
        arguments: Sequence[str],
        *,
        user: str = "root",
        directory: str = "/",
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        stop: Stop | None = None,
    ) -> ExecResult:
        """Run a command inside, as `user` of the root filesystem; return its status and output.

        Raises `CommandTimeout` when it does not end within `timeout_s`; it is killed then. `stop` lets
        another thread end it (aio does).
        """
        if isinstance(arguments, str):
            raise WebservError(
                f"exec takes a sequence of strings, as in [{arguments.split(' ')[0]!r}, ...], not one string"
            )
        if not arguments:
            raise WebservError("exec needs at least a program")
        with self._lock:
            incarnation = self._running()
        program = incarnation.template.program(tuple(arguments), user, directory, dict(environment or {}))
        return command.run(incarnation, program, stdin, timeout_s, stop)

    def logs(self, service: str | None = None, max_bytes: int = MAX_LOG_BYTES) -> str:
        """Return the end of one service's log, or of all (pid 1's own is `init`)."""
        with self._lock:
            incarnation = self._running()
            if service is None:
                return incarnation.log_tail()
            if service not in incarnation.layers.log_names():
                known = ", ".join(incarnation.layers.log_names())
                raise WebservError(f"instance {self.name} has no service {service!r}: there are {known}")
            return incarnation.layers.read_log(service, max_bytes)

    def changes(self) -> Changes:
        """Return the files added, modified and deleted since the start state; it is frozen meanwhile."""
        with self._lock, self._frozen() as incarnation:
            return find_changes(incarnation)

    def statistics(self) -> InstanceStatistics:
        """Measure memory, processor time and storage now; the instance is frozen meanwhile."""
        with self._lock, self._frozen() as incarnation:
            return measure(incarnation)

    @property
    def incarnation(self) -> Incarnation:
        """What runs at present; it is another one after the next reset. Raises when nothing runs."""
        with self._lock:
            return self._running()

    @property
    def root(self) -> Path:
        """The root directory as the instance sees it, for reading from the host until the next reset."""
        with self._lock:
            return Path(f"/proc/{self._running().process.pid}/root")

    def _replace(self, began: float) -> None:
        """Exchange what runs for a fresh incarnation; on failure nothing runs."""
        self.backend.hold()
        self._let_go("starting")
        try:
            self._incarnation = self._take()
        except BaseException:
            self.state = "failed"
            raise
        self._engine_ms = (time.perf_counter() - began) * 1000

    def _take(self) -> Incarnation:
        try:
            return self.strategy.take()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        # What has just been given up may hold the room.
        self.host.reaper.drain()
        try:
            return self.strategy.take()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise PoolFull(INSTANCE_BYTES, self.host.pool.status().free_bytes, "an instance") from error
            raise

    def _finish(self, began: float) -> Timing:
        self._open_when_ready(self._running())
        self.timing = Timing(self._engine_ms, (time.perf_counter() - began) * 1000)
        return self.timing

    def _open_when_ready(self, incarnation: Incarnation) -> None:
        if self.state == "ready":
            return
        try:
            make_ready(incarnation, is_wanted=lambda: not self._is_to_go)
            self.backend.open(incarnation.network.fileno())
        except NotReady as error:
            self._let_go("failed")
            if self._is_to_go:
                raise WebservError(f"instance {self.name} was removed before it was ready") from error
            raise
        except BaseException:
            self._let_go("failed")
            raise
        self.state = "ready"

    @contextmanager
    def _frozen(self) -> Iterator[Incarnation]:
        """Freeze what runs for the length of the block; if it cannot be thawed, the instance is `failed`."""
        incarnation = self._running()
        try:
            incarnation.freeze()
            yield incarnation
        finally:
            try:
                incarnation.thaw()
            except BaseException:
                self._let_go("failed")
                raise

    def _let_go(self, state: State) -> None:
        self.state = state
        incarnation, self._incarnation = self._incarnation, None
        if incarnation is not None:
            try:
                self.backend.hold()
            finally:
                self.host.reaper.take(incarnation)

    def _running(self) -> Incarnation:
        if self._incarnation is None:
            raise WebservError(f"instance {self.name} is {self.state}: start or reset it first")
        return self._incarnation

    def _require_not_removed(self) -> None:
        if self.state == "removed":
            raise WebservError(f"instance {self.name} is removed: launch another one")

    def __enter__(self) -> Instance:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Instance {self.name} of {self.base_name}, {self.state}>"
