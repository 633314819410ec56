"""Carry connections from the host into instances' network namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from webserv_rt._native import ffi, lib
from webserv_rt.kernel.error import check, new_error

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Traffic:
    """Count connections and bytes since the gateway or the backend was made."""

    accepted: int
    """Connections taken from clients."""
    refused: int
    """Connections that the gateway ended before they reached a server."""
    dropped: int
    """Connections in use that were cut because their backend was held or removed."""
    active: int
    """Connections that reach into an instance now."""
    parked: int
    """Connections that wait now."""
    bytes_in: int
    """Carried from clients to servers."""
    bytes_out: int
    """Carried from servers to clients."""


def _traffic(counters: Any) -> Traffic:
    return Traffic(*(getattr(counters, name) for name in Traffic.__dataclass_fields__))


class Gateway:
    """Run the thread that carries connections; closing it ends every connection and listener.

    A context manager. All methods, also those of backends and listeners, may be called from any thread and
    raise `KernelError`: ENOENT for what was closed, ESHUTDOWN once the gateway is.

    `hold_timeout_s`: a connection that waits longer for its backend is closed.
    `handshake_timeout_s`: a SOCKS client that takes longer to name its destination is closed.
    `connect_timeout_s`: a server that takes longer to accept is taken for not listening.
    `max_parked`: connections that may wait per backend; further ones are refused.
    """

    def __init__(
        self,
        *,
        hold_timeout_s: float = 60.0,
        handshake_timeout_s: float = 10.0,
        connect_timeout_s: float = 30.0,
        max_parked: int = 4096,
    ) -> None:
        limits = ffi.new("struct wsrt_gateway_limits *")
        limits.hold_timeout_ms = round(1000 * hold_timeout_s)
        limits.handshake_timeout_ms = round(1000 * handshake_timeout_s)
        limits.connect_timeout_ms = round(1000 * connect_timeout_s)
        limits.max_parked = max_parked
        error = new_error()
        pointer = lib.wsrt_gateway_start(limits, error)
        check(-1 if pointer == ffi.NULL else 0, error)
        # Freed with its last reference, so that a call under way in another thread never meets freed memory.
        self._pointer = ffi.gc(pointer, lib.wsrt_gateway_free)

    def close(self) -> None:
        """End the thread and everything it carries; may be called again."""
        lib.wsrt_gateway_stop(self._pointer)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_backend(self) -> Backend:
        """Return a new backend, which is held."""
        error = new_error()
        return Backend(self, check(lib.wsrt_gateway_add_backend(self._pointer, error), error))

    def listen(
        self, backend: Backend, target_port: int, address: str = LOOPBACK, port: int = 0
    ) -> PortListener:
        """Lead connections to a port of the host to `target_port` of `backend`; port 0: the kernel chooses.

        `address` is an IPv4 or IPv6 literal; it lies in the calling thread's network namespace.
        """
        error = new_error()
        bound_port = ffi.new("uint16_t *")
        listener = lib.wsrt_gateway_listen(
            self._pointer, backend.id, target_port, address.encode(), port, bound_port, error
        )
        return PortListener(self, check(listener, error), bound_port[0])

    def socks(
        self, table: Mapping[tuple[str, int], tuple[Backend, int]], address: str = LOOPBACK, port: int = 0
    ) -> SocksListener:
        """Serve SOCKS5 on a port of the host: (host, port) in `table` leads to (backend, port inside).

        Hosts are names (compared without regard to case) or address literals. Nothing else is reached.
        """
        routes = ffi.new("struct wsrt_gateway_route[]", len(table))
        for route, ((host, asked_port), (backend, target_port)) in zip(routes, table.items(), strict=True):
            route.host = _encode_host(host)
            route.port, route.target_port, route.backend = asked_port, target_port, backend.id
        error = new_error()
        bound_port = ffi.new("uint16_t *")
        listener = lib.wsrt_gateway_socks(
            self._pointer, routes, len(table), address.encode(), port, bound_port, error
        )
        return SocksListener(self, check(listener, error), bound_port[0])

    def stats(self) -> Traffic:
        """Return the counters of all backends and listeners, closed ones included."""
        error = new_error()
        counters = ffi.new("struct wsrt_gateway_traffic *")
        check(lib.wsrt_gateway_traffic(self._pointer, counters, error), error)
        return _traffic(counters)


class Backend:
    """Stand for one instance slot, whose network namespace changes with every reset."""

    def __init__(self, gateway: Gateway, id: int) -> None:
        self.id = id
        self._pointer = gateway._pointer

    def hold(self) -> None:
        """Let new connections wait, and end those in use.

        On return nothing is carried into or out of the old namespace any more (the last sockets in it are
        closed right afterwards). Connections that have carried data are reset; the others wait like new ones.
        """
        error = new_error()
        check(lib.wsrt_gateway_hold(self._pointer, self.id, error), error)

    def open(self, netns_fd: int) -> None:
        """Carry waiting and new connections into the network namespace of `netns_fd` (duplicated here).

        What is still in use with the namespace opened before is ended as by `hold`.
        """
        error = new_error()
        check(lib.wsrt_gateway_open(self._pointer, self.id, netns_fd, error), error)

    def close(self) -> None:
        """End the backend and its connections; listeners that lead to it refuse from now on."""
        error = new_error()
        check(lib.wsrt_gateway_remove_backend(self._pointer, self.id, error), error)

    def stats(self) -> Traffic:
        """Return the counters of this backend's connections."""
        error = new_error()
        counters = ffi.new("struct wsrt_gateway_traffic *")
        check(lib.wsrt_gateway_backend_traffic(self._pointer, self.id, counters, error), error)
        return _traffic(counters)


class PortListener:
    """Lead one port of the host to one port of a backend."""

    def __init__(self, gateway: Gateway, id: int, port: int) -> None:
        self.port = port
        self._id = id
        self._pointer = gateway._pointer

    def close(self) -> None:
        """Stop listening; connections already made go on."""
        error = new_error()
        check(lib.wsrt_gateway_close_listener(self._pointer, self._id, error), error)


class SocksListener(PortListener):
    """Lead SOCKS5 clients to the destinations of one table."""

    @property
    def refused(self) -> int:
        """Count clients turned away: destination not in the table, other command, no SOCKS5, too slow."""
        error = new_error()
        refused = ffi.new("uint64_t *")
        check(lib.wsrt_gateway_listener_refused(self._pointer, self._id, refused, error), error)
        return int(refused[0])


def _encode_host(host: str) -> bytes:
    encoded = host.encode("ascii", "replace")
    if not 0 < len(encoded) < 256 or not host.isascii():
        raise ValueError(f"SOCKS table: host {host!r}: use 1 to 255 ASCII characters (IDNA form)")
    return encoded
