"""The same face for asyncio and trio: every call runs in a worker thread, so the event loop never waits.

`async with aio.Host() as host: async with await host.launch("shop") as instance: await instance.reset()`

Cancelling is safe: what a cancelled call was making is removed, a cancelled command is killed. A reset or
stop under way is not broken off: it goes on to its end, and the next call on the instance waits for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from webserv_rt import host as sync_host
from webserv_rt import instance as sync_instance
from webserv_rt import world as sync_world
from webserv_rt.changes import Changes
from webserv_rt.command import ExecResult, Stop
from webserv_rt.host import StrategyName
from webserv_rt.instance import MAX_LOG_BYTES, State, Timing
from webserv_rt.statistics import InstanceStatistics
from webserv_rt.storage.base import Base
from webserv_rt.storage.progress import ProgressCallback

P = ParamSpec("P")
T = TypeVar("T")


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await _run(partial(function, *args, **kwargs), abandon_on_cancel=False)


async def _run(function: Callable[[], T], *, abandon_on_cancel: bool) -> T:
    # A limiter of its own: behind the common one, a removal would wait for 40 commands that only it can end.
    limiter = anyio.CapacityLimiter(1)
    return await anyio.to_thread.run_sync(function, abandon_on_cancel=abandon_on_cancel, limiter=limiter)


async def _make(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Make something in a thread; if its caller is cancelled meanwhile, it is undone, by whoever comes last.

    (asyncio cancels a task even where anyio shields it.)
    """
    lock = threading.Lock()
    made: list[T] = []
    is_wanted = True

    def work() -> None:
        result = make()
        with lock:
            if is_wanted:
                made.append(result)
                return
        undo(result)

    try:
        await _in_thread(work)
    except BaseException:
        with lock:
            is_wanted = False
        if made:
            with anyio.CancelScope(shield=True):
                await _in_thread(undo, made[0])
        raise
    return made[0]


class Instance:
    """An instance; see `webserv_rt.Instance`, whose methods these are."""

    def __init__(self, sync: sync_instance.Instance) -> None:
        self.sync = sync

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.sync.name

    @property
    def state(self) -> State:
        """What the instance does at present."""
        return self.sync.state

    @property
    def timing(self) -> Timing | None:
        """How long the last launch or reset took."""
        return self.sync.timing

    @property
    def port(self) -> int:
        """The port on the host that leads to the site's port inside."""
        return self.sync.port

    @property
    def url(self) -> str:
        """The site's address through the per-instance port."""
        return self.sync.url

    async def launch(self) -> Timing:
        """Start and wait until ready."""
        return await _in_thread(self.sync.launch)

    async def start(self) -> None:
        """Start the services."""
        await _in_thread(self.sync.start)

    async def wait_ready(self) -> None:
        """Wait until the site answers as its spec says."""
        await _in_thread(self.sync.wait_ready)

    async def reset(self) -> Timing:
        """Put the instance back to the start state, ready."""
        return await _in_thread(self.sync.reset)

    async def exec(
        self,
        arguments: Sequence[str],
        *,
        user: str = "root",
        directory: str = "/",
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a command inside; return its status and output. Cancelled, it is killed with all it started."""
        stop = Stop()

        def work() -> ExecResult:
            try:
                return self.sync.exec(
                    arguments,
                    user=user,
                    directory=directory,
                    environment=environment,
                    stdin=stdin,
                    timeout_s=timeout_s,
                    stop=stop,
                )
            finally:
                stop.close()

        try:
            return await _run(work, abandon_on_cancel=True)
        except BaseException:
            stop.set()
            raise

    async def logs(self, service: str | None = None, max_bytes: int = MAX_LOG_BYTES) -> str:
        """Return the end of one service's log, or of all."""
        return await _in_thread(self.sync.logs, service, max_bytes)

    async def changes(self) -> Changes:
        """Return the files added, modified and deleted since the start state."""
        return await _in_thread(self.sync.changes)

    async def statistics(self) -> InstanceStatistics:
        """Measure memory, processor time and storage now."""
        return await _in_thread(self.sync.statistics)

    async def stop(self) -> None:
        """End the services in good order."""
        await _in_thread(self.sync.stop)

    async def remove(self) -> None:
        """End the instance and give everything back."""
        with anyio.CancelScope(shield=True):
            await _in_thread(self.sync.remove)

    async def __aenter__(self) -> Instance:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.remove()


class World(Mapping[str, Instance]):
    """A world; see `webserv_rt.World`."""

    def __init__(self, sync: sync_world.World) -> None:
        self.sync = sync
        self._instances = {name: Instance(instance) for name, instance in sync.items()}

    @property
    def name(self) -> str:
        """The world's name."""
        return self.sync.name

    @property
    def proxy_url(self) -> str:
        """The world's way in, for browsers and HTTP clients."""
        return self.sync.proxy_url

    @property
    def socks_port(self) -> int:
        """The SOCKS5 port on the host."""
        return self.sync.socks_port

    async def reset(self) -> dict[str, Timing]:
        """Reset all instances at once."""
        return await _in_thread(self.sync.reset)

    async def remove(self) -> None:
        """Remove the instances and close the SOCKS5 port."""
        with anyio.CancelScope(shield=True):
            await _in_thread(self.sync.remove)

    def __getitem__(self, name: str) -> Instance:
        return self._instances[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._instances)

    def __len__(self) -> int:
        return len(self._instances)

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.remove()


class Host:
    """A Host; see `webserv_rt.Host`. Opened by `async with`; what has no method here is in `sync`."""

    def __init__(self, pool: str | os.PathLike[str] | None = None, *, n_spares: int = 1) -> None:
        self._open = partial(sync_host.Host, None if pool is None else Path(pool), n_spares=n_spares)
        self.sync: sync_host.Host

    async def bases(self) -> list[Base]:
        """Return the pool's bases."""
        return await _in_thread(self.sync.bases)

    async def import_base(
        self, source: str, name: str, *, site: Path | None = None, progress: ProgressCallback | None = None
    ) -> Base:
        """Import a directory, archive, OCI layout or image as the base `name`."""
        return await _in_thread(self.sync.import_base, source, name, site=site, progress=progress)

    async def create(
        self, base: str, *, name: str | None = None, strategy: StrategyName = "cold", port: int = 0
    ) -> Instance:
        """Make an instance that does not run yet."""
        make = partial(self.sync.create, base, name=name, strategy=strategy, port=port)
        return Instance(await _make(make, sync_instance.Instance.remove))

    async def launch(
        self, base: str, *, name: str | None = None, strategy: StrategyName = "cold", port: int = 0
    ) -> Instance:
        """Make an instance, start it and wait until it is ready; cancelled, nothing of it is left."""
        instance = await self.create(base, name=name, strategy=strategy, port=port)
        try:
            # Its removal, not waiting for the site, ends the thread.
            await _run(instance.sync.launch, abandon_on_cancel=True)
        except BaseException:
            await instance.remove()
            raise
        return instance

    async def world(
        self, bases: Iterable[str], *, name: str | None = None, strategy: StrategyName = "cold"
    ) -> World:
        """Launch one instance of each base as one environment."""
        make = partial(self.sync.world, tuple(bases), name=name, strategy=strategy)
        return World(await _make(make, sync_world.World.remove))

    async def __aenter__(self) -> Host:
        self.sync = await _make(self._open, sync_host.Host.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await _in_thread(self.sync.close)
