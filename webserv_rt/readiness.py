"""Find out when an instance is ready: ask it what its site spec says, until the answer is right."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from webserv_rt.kernel.connect import connect_in_namespace
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.resolved_site import ResolvedSite
from webserv_rt.site import Ready, Warm

# A refused connection costs microseconds, an error page costs the site's own processor time, which it needs to
# get ready: so the one is asked again at once, the other after a pause.
_REFUSED_PAUSE_S: Final = 0.001
_WRONG_ANSWER_PAUSE_S: Final = 0.01
_REQUEST_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class NotYet:
    """Why a probe failed, for the error text, and how long to pause before the next one."""

    reason: str
    pause_s: float


class _NamespaceConnection(http.client.HTTPConnection):
    def __init__(self, network: Descriptor, host: str, port: int, timeout_s: float) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._network = network
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = connect_in_namespace(self._network.fileno(), self.port, self._timeout_s)
        self.sock.settimeout(self._timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def request(
    network: Descriptor, site: ResolvedSite, method: str, path: str, timeout_s: float = _REQUEST_TIMEOUT_S
) -> tuple[int, bytes]:
    """Send one HTTP request to the site's port inside the namespace; return status and body.

    Raises OSError or http.client.HTTPException as the connection does.
    """
    host = site.hosts[0] if site.port == 80 else f"{site.hosts[0]}:{site.port}"
    connection = _NamespaceConnection(network, site.hosts[0], site.port, timeout_s)
    try:
        connection.request(method, path, headers={"Host": host, "Connection": "close", "User-Agent": "webserv_rt"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def probe(site: ResolvedSite, network: Descriptor, run: Callable[[tuple[str, ...]], int]) -> NotYet | None:
    """Ask once; return None when the site is ready. `run` executes a command inside the instance."""
    ready = site.ready
    if ready.command is not None:
        status = run(ready.command)
        return None if status == 0 else NotYet(f"{ready.command[0]} exits with {status}", _WRONG_ANSWER_PAUSE_S)
    if ready.tcp is not None:
        return _probe_tcp(network, ready.tcp)
    return _probe_http(site, ready, network)


def _probe_tcp(network: Descriptor, port: int) -> NotYet | None:
    try:
        connect_in_namespace(network.fileno(), port, _REQUEST_TIMEOUT_S).close()
    except OSError as error:
        return NotYet(f"port {port}: {error.strerror or error}", _REFUSED_PAUSE_S)
    return None


def _probe_http(site: ResolvedSite, ready: Ready, network: Descriptor) -> NotYet | None:
    assert ready.http is not None
    try:
        status, body = request(network, site, "GET", ready.http)
    except ConnectionRefusedError:
        return NotYet(f"port {site.port}: connection refused", _REFUSED_PAUSE_S)
    except (OSError, http.client.HTTPException) as error:
        return NotYet(f"GET {ready.http}: {error or type(error).__name__}", _WRONG_ANSWER_PAUSE_S)
    if status != ready.status:
        return NotYet(f"GET {ready.http}: status {status}, not {ready.status}", _WRONG_ANSWER_PAUSE_S)
    if ready.contains is not None and ready.contains.encode() not in body:
        return NotYet(f"GET {ready.http}: the page does not contain {ready.contains!r}", _WRONG_ANSWER_PAUSE_S)
    return None


def await_ready(
    site: ResolvedSite,
    network: Descriptor,
    run: Callable[[tuple[str, ...]], int],
    is_alive: Callable[[], bool],
    deadline: float,
) -> NotYet | None:
    """Probe until ready; return None then, or the last reason at `deadline` (time.monotonic) or at the end."""
    while True:
        answer = probe(site, network, run)
        if answer is None:
            return None
        if not is_alive():
            return NotYet("all its services have ended", 0)
        if time.monotonic() + answer.pause_s > deadline:
            return answer
        time.sleep(answer.pause_s)


def send_warm_up(site: ResolvedSite, network: Descriptor, requests: tuple[Warm, ...]) -> str | None:
    """Send the warm-up requests in order; return what went wrong, or None."""
    for warm in requests:
        try:
            status, _ = request(network, site, warm.method, warm.path)
        except (OSError, http.client.HTTPException) as error:
            return f"warm-up {warm.method} {warm.path}: {error or type(error).__name__}"
        if status != warm.status:
            return f"warm-up {warm.method} {warm.path}: status {status}, not {warm.status}"
    return None
