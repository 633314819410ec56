"""Connect to a server inside another network namespace."""

from __future__ import annotations

import errno
import select
import socket

from webserv_rt._native import lib
from webserv_rt.kernel.error import KernelError, check, new_error


def connect_in_namespace(netns_fd: int, port: int, timeout_s: float) -> socket.socket:
    """Return a socket connected to 127.0.0.1:`port` inside the network namespace of `netns_fd`.

    `timeout_s` bounds the connecting and becomes the socket's timeout. Raises `KernelError` (ECONNREFUSED:
    nothing listens; ETIMEDOUT). The calling thread is in its own namespace again on return; should that ever
    fail, the process aborts.
    """
    error = new_error()
    connection = socket.socket(fileno=check(lib.wsrt_connect_in_namespace(netns_fd, port, error), error))
    try:
        _finish_connecting(connection, port, timeout_s)
    except BaseException:
        connection.close()
        raise
    connection.settimeout(timeout_s)
    return connection


def _finish_connecting(connection: socket.socket, port: int, timeout_s: float) -> None:
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    is_decided = poll.poll(1000 * timeout_s)
    code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if is_decided else errno.ETIMEDOUT
    if code:
        raise KernelError("connect", f"127.0.0.1:{port} in network namespace", code)
