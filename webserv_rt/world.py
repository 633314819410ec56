"""A world: the instances that make one environment, reset together and seen by one browser context."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from webserv_rt.errors import WebservError
from webserv_rt.instance import Instance, Timing

if TYPE_CHECKING:
    from webserv_rt.host import Host


class World(Mapping[str, Instance]):
    """Instances by name, behind one SOCKS5 port that knows their canonical host names and nothing else."""

    def __init__(
        self, host: Host, name: str, instances: Mapping[str, Instance], address: str, port: int
    ) -> None:
        if not instances:
            raise WebservError(f"world {name}: name at least one base")
        self.name = name
        self._host = host
        self._address = address
        self._instances = dict(instances)
        self._removal = threading.Lock()
        self._is_removed = False
        table = {}
        for instance in self._instances.values():
            site = instance.strategy.template.site
            for host_name in site.hosts:
                for inner in site.ports:
                    if (host_name, inner) in table:
                        raise WebservError(
                            f"world {name}: two instances answer to {host_name}:{inner}; "
                            "give them other hosts"
                        )
                    table[host_name, inner] = (instance.backend, inner)
        self._socks = host.gateway.socks(table, address, port)
        self._threads = ThreadPoolExecutor(len(self._instances), f"webserv_rt-{name}")

    @property
    def proxy_url(self) -> str:
        """The world's way in, as browsers and HTTP clients take it (`socks5h`: names are looked up here)."""
        return f"socks5h://{self._address}:{self._socks.port}"

    @property
    def socks_port(self) -> int:
        """The SOCKS5 port on the host."""
        return self._socks.port

    def reset(self) -> dict[str, Timing]:
        """Reset all instances at once; return their timings. The first failure is raised at the end."""
        with self._removal:
            if self._is_removed:
                raise WebservError(f"world {self.name} is removed: make another one")
            running = {
                name: self._threads.submit(instance.reset) for name, instance in self._instances.items()
            }
        errors = [error for future in running.values() if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return {name: future.result() for name, future in running.items()}

    def remove(self) -> None:
        """Remove the instances and close the SOCKS5 port; removing twice is harmless."""
        if self._host.is_forked:
            return
        with self._removal:
            if self._is_removed:
                return
            self._is_removed = True
            with ExitStack() as ended:  # last in, first out; each whatever becomes of the others
                ended.callback(self._host.forget_world, self)
                ended.callback(self._threads.shutdown)
                for instance in self._instances.values():
                    ended.callback(instance.remove)
                ended.callback(self._socks.close)

    def __getitem__(self, name: str) -> Instance:
        return self._instances[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._instances)

    def __len__(self) -> int:
        return len(self._instances)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
