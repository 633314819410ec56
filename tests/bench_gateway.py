"""What the gateway costs, against connections made directly inside the namespace."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from webserv_rt.kernel.connect import connect_in_namespace
from webserv_rt.kernel.gateway import Backend, Gateway

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

SERVER = Path(__file__).with_name("gateway_server.py")
HTTP, SOURCE = 8000, 8003
DOWNLOAD_SIZE = 64 << 20
REQUEST = b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nbench /"

Dial = Callable[[int], socket.socket]


@pytest.fixture(scope="module")
def netns_fd() -> Iterator[int]:
    command = ["unshare", "-n", sys.executable, str(SERVER), "bench"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"ready\n"
        fd = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY)
        yield fd
        os.close(fd)
        process.stdin.close()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def backend(gateway: Gateway, netns_fd: int) -> Backend:
    backend = gateway.add_backend()
    backend.open(netns_fd)
    return backend


@pytest.fixture(scope="module", params=["direct", "port", "socks"])
def dial(request: pytest.FixtureRequest, gateway: Gateway, backend: Backend, netns_fd: int) -> Dial:
    ports = {target: gateway.listen(backend, target).port for target in (HTTP, SOURCE)}
    socks_port = gateway.socks({("shop.test", target): (backend, target) for target in (HTTP, SOURCE)}).port

    def dial_port(target: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", ports[target]), 10)

    def dial_socks(target: int) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", socks_port), 10)
        client.sendall(b"\x05\x01\x00")
        assert client.recv(2) == b"\x05\x00"
        client.sendall(b"\x05\x01\x00\x03\x09shop.test" + target.to_bytes(2, "big"))
        assert client.recv(10)[1] == 0
        return client

    ways: dict[str, Dial] = {
        "direct": lambda target: connect_in_namespace(netns_fd, target, 10),
        "port": dial_port,
        "socks": dial_socks,
    }
    return ways[request.param]


def exchange(client: socket.socket) -> None:
    client.sendall(REQUEST)
    assert client.recv(1000) == ANSWER


@pytest.mark.benchmark(group="request on a connection kept alive")
def test_request_on_a_connection_kept_alive(benchmark: BenchmarkFixture, dial: Dial) -> None:
    with dial(HTTP) as client:
        benchmark(exchange, client)


@pytest.mark.benchmark(group="request on a new connection")
def test_request_on_a_new_connection(benchmark: BenchmarkFixture, dial: Dial) -> None:
    def request() -> None:
        with dial(HTTP) as client:
            exchange(client)

    benchmark(request)


@pytest.mark.benchmark(group="download of 64 MiB")
def test_download_of_64_mib(benchmark: BenchmarkFixture, dial: Dial) -> None:
    buffer = bytearray(1 << 18)

    def download() -> None:
        with dial(SOURCE) as client:
            client.sendall(b"%d\n" % DOWNLOAD_SIZE)
            left = DOWNLOAD_SIZE
            while n := client.recv_into(buffer):
                left -= n
            assert left == 0

    benchmark.pedantic(download, rounds=5)  # type: ignore[no-untyped-call]


@pytest.mark.benchmark(group="reset of a backend")
@pytest.mark.parametrize("n_used", [0, 10, 100])
def test_hold_and_open_with_connections_in_use(
    benchmark: BenchmarkFixture, gateway: Gateway, netns_fd: int, n_used: int
) -> None:
    backend = gateway.add_backend()
    port = gateway.listen(backend, HTTP).port
    clients: list[socket.socket] = []

    def fill() -> None:
        while clients:
            clients.pop().close()
        backend.open(netns_fd)
        for _ in range(n_used):
            clients.append(socket.create_connection(("127.0.0.1", port), 10))
            exchange(clients[-1])

    def hold_and_open() -> None:
        backend.hold()
        backend.open(netns_fd)

    benchmark.pedantic(hold_and_open, setup=fill, rounds=30)  # type: ignore[no-untyped-call]
    while clients:
        clients.pop().close()
