"""Find out when an instance is ready: ask it what its site spec says, until the answer is right."""

from __future__ import annotations

import errno
import http.client
import io
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from webserv_rt.kernel.connect import connect_in_namespace
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.resolved_site import ResolvedSite
from webserv_rt.site import Ready, Warm

# Between probes, as long as the last one took: a refused connection costs microseconds, an error page the
# site's own processor time, which it needs to get ready.
_SHORTEST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.01
_REQUEST_TIMEOUT_S: Final = 30.0
# What an instance sends may be hostile: no more of a page is read.
_MAX_PAGE_BYTES: Final = 16 << 20
# Head and framing included: their sizes, and those of the pieces of a page, are what the instance says.
_MAX_ANSWER_BYTES: Final = 2 * _MAX_PAGE_BYTES
_MAX_REASON_LENGTH: Final = 200
# The last probe before the deadline gets a chance too, so that a slow site's own answer is told.
_SHORTEST_PROBE_S: Final = 1.0

# Executes a command inside the instance; returns its exit status, None when it did not end in time.
RunCommand = Callable[[tuple[str, ...], float], "int | None"]


class _Received(io.RawIOBase):
    """What a socket receives before a deadline, within bounds.

    A time-out of its own would start anew with every byte.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._n_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(remaining_s)
        n_bytes = self._connection.recv_into(buffer)
        self._n_bytes += n_bytes
        if self._n_bytes > _MAX_ANSWER_BYTES:
            raise http.client.HTTPException(f"the answer has more than {_MAX_ANSWER_BYTES >> 20} MiB")
        return n_bytes


class _Source:
    """The one thing that HTTPResponse asks of a socket."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._received = _Received(connection, deadline)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._received)


def request(
    network: Descriptor, site: ResolvedSite, method: str, path: str, timeout_s: float = _REQUEST_TIMEOUT_S
) -> tuple[int, bytes]:
    """Send one HTTP request to the site's port inside the namespace; return status and body (16 MiB of it).

    `timeout_s` bounds the whole of it. Raises OSError or http.client.HTTPException.
    """
    deadline = time.monotonic() + timeout_s
    host = site.hosts[0] if site.port == 80 else f"{site.hosts[0]}:{site.port}"
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: webserv_rt\r\nConnection: close\r\n"
    length = "Content-Length: 0\r\n" if method == "POST" else ""
    with connect_in_namespace(network.fileno(), site.port, timeout_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"{head}{length}\r\n".encode("ascii"))
        source: Any = _Source(connection, deadline)
        with http.client.HTTPResponse(source, method=method) as response:
            try:
                response.begin()
                body = response.read(_MAX_PAGE_BYTES)
            except ValueError as error:  # a piece of the page with a negative length
                raise http.client.HTTPException(str(error)) from error
            if response.length and len(body) < _MAX_PAGE_BYTES:
                raise http.client.IncompleteRead(body, response.length)
            return response.status, body


def probe(site: ResolvedSite, network: Descriptor, run: RunCommand, timeout_s: float) -> str | None:
    """Ask once, for `timeout_s` at most; return None when the site is ready, else why it is not."""
    ready = site.ready
    if ready.command is not None:
        return _probe_command(ready.command, run, timeout_s)
    if ready.tcp is not None:
        return _probe_tcp(network, ready.tcp, timeout_s)
    return _probe_http(site, ready, network, timeout_s)


def _probe_command(command: tuple[str, ...], run: RunCommand, timeout_s: float) -> str | None:
    status = run(command, timeout_s)
    if status == 0:
        return None
    how = "did not end" if status is None else f"exits with {status}"
    return f"{command[0]} {how}"


def _probe_tcp(network: Descriptor, port: int, timeout_s: float) -> str | None:
    try:
        connect_in_namespace(network.fileno(), port, timeout_s).close()
    except OSError as error:
        return f"port {port}: {(error.strerror or str(error)).lower()}"
    return None


def _probe_http(site: ResolvedSite, ready: Ready, network: Descriptor, timeout_s: float) -> str | None:
    assert ready.http is not None
    try:
        status, body = request(network, site, "GET", ready.http, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            return f"port {site.port}: connection refused"
        return f"GET {ready.http}: {_shown(error)}"
    if status != ready.status:
        return f"GET {ready.http}: status {status}, not {ready.status}"
    if ready.contains is not None and ready.contains.encode() not in body:
        return f"GET {ready.http}: the page does not contain {ready.contains!r}"
    return None


def _shown(error: Exception) -> str:
    # The text may hold what the instance sent.
    return ascii(str(error))[1:-1][:_MAX_REASON_LENGTH] or type(error).__name__


def await_ready(
    site: ResolvedSite,
    network: Descriptor,
    run: RunCommand,
    is_alive: Callable[[], bool],
    deadline: float,
) -> str | None:
    """Probe until ready; return None then, the last reason at `deadline` (time.monotonic) or at the end."""
    while True:
        began = time.monotonic()
        timeout_s = min(_REQUEST_TIMEOUT_S, max(_SHORTEST_PROBE_S, deadline - began))
        answer = probe(site, network, run, timeout_s)
        if answer is None:
            return None
        if not is_alive():
            return "all its services have ended"
        now = time.monotonic()
        pause_s = min(max(now - began, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        if now + pause_s > deadline:
            return answer
        time.sleep(pause_s)


def send_warm_up(site: ResolvedSite, network: Descriptor, requests: tuple[Warm, ...]) -> str | None:
    """Send the warm-up requests in order; return what went wrong, or None."""
    for warm in requests:
        try:
            status, _ = request(network, site, warm.method, warm.path)
        except (OSError, http.client.HTTPException) as error:
            return f"warm-up {warm.method} {warm.path}: {_shown(error)}"
        if status != warm.status:
            return f"warm-up {warm.method} {warm.path}: status {status}, not {warm.status}"
    return None
