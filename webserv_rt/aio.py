"""The same face for asyncio and trio: every call runs in a worker thread, so the event loop never waits.

`async with aio.Host() as host: async with await host.launch("shop") as instance: await instance.reset()`
"""

from __future__ import annotations

import os
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
from webserv_rt.command import ExecResult
from webserv_rt.host import StrategyName
from webserv_rt.instance import Timing
from webserv_rt.statistics import InstanceStatistics
from webserv_rt.storage.base import Base

P = ParamSpec("P")
T = TypeVar("T")


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    # Not abandoned on cancellation: a half-made instance would have no owner to remove it.
    return await anyio.to_thread.run_sync(partial(function, *args, **kwargs))


class Instance:
    """An instance; see `webserv_rt.Instance`, whose methods these are."""

    def __init__(self, sync: sync_instance.Instance) -> None:
        self.sync = sync

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.sync.name

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
        """Run a command inside; return its status and output."""
        return await _in_thread(
            self.sync.exec,
            arguments,
            user=user,
            directory=directory,
            environment=environment,
            stdin=stdin,
            timeout_s=timeout_s,
        )

    async def logs(self, service: str | None = None) -> str:
        """Return the end of one service's log, or of all."""
        return await _in_thread(self.sync.logs, service)

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
    def proxy_url(self) -> str:
        """The world's way in, for browsers and HTTP clients."""
        return self.sync.proxy_url

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
    """A Host; see `webserv_rt.Host`. Opened by `async with`."""

    def __init__(self, pool: str | os.PathLike[str] | None = None, *, n_spares: int = 1) -> None:
        self._open = partial(sync_host.Host, None if pool is None else Path(pool), n_spares=n_spares)
        self.sync: sync_host.Host

    async def bases(self) -> list[Base]:
        """Return the pool's bases."""
        return await _in_thread(self.sync.bases)

    async def launch(
        self, base: str, *, name: str | None = None, strategy: StrategyName = "cold"
    ) -> Instance:
        """Make an instance, start it and wait until it is ready."""
        return Instance(await _in_thread(self.sync.launch, base, name=name, strategy=strategy))

    async def world(
        self, bases: Iterable[str], *, name: str | None = None, strategy: StrategyName = "cold"
    ) -> World:
        """Launch one instance of each base as one environment."""
        return World(await _in_thread(self.sync.world, bases, name=name, strategy=strategy))

    async def __aenter__(self) -> Host:
        self.sync = await _in_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await _in_thread(self.sync.close)
