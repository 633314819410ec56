"""The gateway against real network namespaces, each with `gateway_server.py` inside."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import random
import resource
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webserv_rt.kernel.connect import connect_in_namespace
from webserv_rt.kernel.error import KernelError
from webserv_rt.kernel.gateway import Backend, Gateway

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

SERVER = Path(__file__).with_name("gateway_server.py")
HTTP, ECHO, DIGEST, SOURCE, DEAF, ABRUPT, GREETER, FULL = range(8000, 8008)
NOBODY = 8099
MIB = 1 << 20
WAIT_S = 20.0


@dataclass(frozen=True)
class Server:
    name: str
    pid: int
    netns_fd: int


@contextmanager
def running_server(name: str) -> Iterator[Server]:
    command = ["unshare", "-n", sys.executable, str(SERVER), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"ready\n"
        netns_fd = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY)
        try:
            yield Server(name, process.pid, netns_fd)
        finally:
            os.close(netns_fd)
            process.stdin.close()
            process.wait(WAIT_S)


@pytest.fixture(scope="module", autouse=True)
def many_descriptors() -> Iterator[None]:
    """Thousands of connections have both ends in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def one(many_descriptors: None) -> Iterator[Server]:
    with running_server("one") as server:
        yield server


@pytest.fixture(scope="module")
def two(many_descriptors: None) -> Iterator[Server]:
    with running_server("two") as server:
        yield server


def n_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def gateway_that_leaks_nothing(**limits: float) -> Iterator[Gateway]:
    before = n_descriptors()
    with Gateway(**limits) as gateway:  # type: ignore[arg-type]
        yield gateway
    assert n_descriptors() <= before, "descriptors leaked"


@pytest.fixture
def gateway(one: Server, two: Server) -> Iterator[Gateway]:
    with gateway_that_leaks_nothing() as gateway:
        yield gateway


def eventually(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def opened(gateway: Gateway, server: Server) -> Backend:
    backend = gateway.add_backend()
    backend.open(server.netns_fd)
    return backend


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


def get(port: int, path: str = "/") -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def read_all(connection: socket.socket) -> bytes:
    received = bytearray()
    while data := connection.recv(1 << 16):
        received += data
    return bytes(received)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        data = connection.recv(size - len(received))
        assert data, f"end after {received!r}"
        received += data
    return received


def is_reset(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b"no: an orderly end or data"
    except ConnectionResetError:
        return True


def is_turned_away(port: int) -> bool:
    try:
        with dial(port) as client:
            return is_reset(client)
    except ConnectionResetError:  # before connect() had looked
        return True


def cpu_share(seconds: float = 0.4) -> float:
    began = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - began) / seconds


# Ports


def test_request_through_a_port_reaches_the_instance(gateway: Gateway, one: Server) -> None:
    listener = gateway.listen(opened(gateway, one), HTTP)
    assert get(listener.port, "/here") == "one /here"


def test_port_zero_lets_the_kernel_choose_and_a_port_of_ones_own_is_kept(
    gateway: Gateway, one: Server
) -> None:
    backend = opened(gateway, one)
    chosen = gateway.listen(backend, HTTP)
    chosen.close()
    again = gateway.listen(backend, HTTP, port=chosen.port)
    assert again.port == chosen.port
    assert get(again.port) == "one /"


def test_ipv6_address_can_be_listened_on(gateway: Gateway, one: Server) -> None:
    listener = gateway.listen(opened(gateway, one), GREETER, address="::1")
    with socket.create_connection(("::1", listener.port), WAIT_S) as client:
        assert client.recv(10) == b"one\n"


def test_connection_to_a_port_without_server_is_reset(gateway: Gateway, one: Server) -> None:
    backend = opened(gateway, one)
    assert is_turned_away(gateway.listen(backend, NOBODY).port)
    assert backend.stats().refused == 1
    assert backend.stats().active == 0


def test_server_that_does_not_accept_is_given_up_after_the_connect_timeout(one: Server) -> None:
    with gateway_that_leaks_nothing(connect_timeout_s=0.2) as gateway:
        backend = opened(gateway, one)
        assert is_turned_away(gateway.listen(backend, FULL).port)
        assert backend.stats().refused == 1


def test_end_of_the_client_passes_and_the_answer_still_comes_back(gateway: Gateway, one: Server) -> None:
    with dial(gateway.listen(opened(gateway, one), ECHO).port) as client:
        client.sendall(b"ping")
        assert read_exactly(client, 4) == b"ping"
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"last<end>"
    assert eventually(lambda: gateway.stats().active == 0)


def test_server_that_speaks_first_is_heard(gateway: Gateway, one: Server) -> None:
    with dial(gateway.listen(opened(gateway, one), GREETER).port) as client:
        assert client.recv(10) == b"one\n"


def test_reset_by_the_server_reaches_the_client_after_its_data(gateway: Gateway, one: Server) -> None:
    with dial(gateway.listen(opened(gateway, one), ABRUPT).port) as client:
        client.sendall(b"question\n")
        assert read_exactly(client, 11) == b"half an ans"
        assert is_reset(client)


def test_100_mib_arrive_unchanged_upwards(gateway: Gateway, one: Server) -> None:
    payload = random.Random(7).randbytes(100 * MIB)
    chance = random.Random(8)
    with dial(gateway.listen(opened(gateway, one), DIGEST).port) as client:
        sent = 0
        while sent < len(payload):
            sent += client.send(memoryview(payload)[sent : sent + chance.randrange(1, 1 << 18)])
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).decode() == hashlib.sha256(payload).hexdigest()
    assert gateway.stats().bytes_in == len(payload)


def expected_source(size: int) -> str:
    chance, digest, left = random.Random(size), hashlib.sha256(), size
    while left > 0:
        data = chance.randbytes(min(left, chance.randrange(1, 1 << 16)))
        left -= len(data)
        digest.update(data)
    return digest.hexdigest()


def test_100_mib_arrive_unchanged_downwards(gateway: Gateway, one: Server) -> None:
    size, digest, chance = 100 * MIB, hashlib.sha256(), random.Random(9)
    with dial(gateway.listen(opened(gateway, one), SOURCE).port) as client:
        client.sendall(b"%d\n" % size)
        while data := client.recv(chance.randrange(1, 1 << 18)):
            digest.update(data)
    assert digest.hexdigest() == expected_source(size)
    assert gateway.stats().bytes_out == size


def test_both_directions_flow_at_once(gateway: Gateway, one: Server) -> None:
    payload = random.Random(3).randbytes(20 * MIB)
    with dial(gateway.listen(opened(gateway, one), ECHO).port) as client, ThreadPoolExecutor(1) as executor:
        received = executor.submit(read_all, client)
        client.sendall(payload)
        client.shutdown(socket.SHUT_WR)
        assert received.result(WAIT_S) == payload + b"<end>"


def test_slow_reader_stops_the_server_costs_no_cpu_and_loses_nothing(gateway: Gateway, one: Server) -> None:
    size = 100 * MIB
    with dial(gateway.listen(opened(gateway, one), SOURCE).port) as client:
        client.sendall(b"%d\n" % size)
        time.sleep(0.5)
        stalled_at = gateway.stats().bytes_out
        assert cpu_share() < 0.2
        assert gateway.stats().bytes_out == stalled_at < size // 2
        digest = hashlib.sha256()
        while data := client.recv(1 << 16):
            digest.update(data)
        assert digest.hexdigest() == expected_source(size)


def test_server_that_does_not_read_stops_its_client_and_nobody_else(gateway: Gateway, one: Server) -> None:
    backend = opened(gateway, one)
    http_port = gateway.listen(backend, HTTP).port
    with dial(gateway.listen(backend, DEAF).port) as client:
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            while True:
                client.send(b"x" * MIB)
        assert cpu_share() < 0.2
        assert get(http_port) == "one /"


def test_bulk_data_of_some_does_not_keep_others_waiting(gateway: Gateway, one: Server, two: Server) -> None:
    source, http_port = (
        gateway.listen(opened(gateway, one), SOURCE).port,
        gateway.listen(opened(gateway, two), HTTP).port,
    )

    def download() -> int:
        with dial(source) as client:
            client.sendall(b"%d\n" % (100 * MIB))
            return len(read_all(client))

    with ThreadPoolExecutor(2) as executor:
        downloads = [executor.submit(download) for _ in range(2)]
        times_s = []
        for _ in range(20):
            began = time.monotonic()
            assert get(http_port) == "two /"
            times_s.append(time.monotonic() - began)
        assert [each.result(60) for each in downloads] == [100 * MIB] * 2
    assert sorted(times_s)[10] < 0.5


def test_half_closed_connections_cost_no_cpu(gateway: Gateway, one: Server) -> None:
    with dial(gateway.listen(opened(gateway, one), DEAF).port) as client:
        assert client.recv(10) == b"deaf\n"
        client.shutdown(socket.SHUT_WR)
        assert cpu_share() < 0.2


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("leave", [reset, socket.socket.close])
def test_client_that_vanishes_in_a_download_leaves_nothing(
    gateway: Gateway, one: Server, leave: Callable[[socket.socket], None]
) -> None:
    port = gateway.listen(opened(gateway, one), SOURCE).port
    for _ in range(10):
        client = dial(port)
        client.sendall(b"%d\n" % (100 * MIB))
        client.recv(1000)
        leave(client)
    assert eventually(lambda: gateway.stats().active == 0)


def test_client_that_resets_after_half_closing_leaves_nothing(gateway: Gateway, one: Server) -> None:
    client = dial(gateway.listen(opened(gateway, one), DEAF).port)
    assert client.recv(10) == b"deaf\n"
    client.shutdown(socket.SHUT_WR)
    time.sleep(0.05)
    assert gateway.stats().active == 1
    reset(client)
    assert eventually(lambda: gateway.stats().active == 0)


def test_2000_idle_connections_are_carried_at_a_small_cost(gateway: Gateway, one: Server) -> None:
    backend = opened(gateway, one)
    port, http_port = gateway.listen(backend, GREETER).port, gateway.listen(backend, HTTP).port
    clients: list[socket.socket] = []
    try:
        before = resident_bytes()
        for _ in range(2000):
            clients.append(dial(port))
            assert clients[-1].recv(10) == b"one\n"
        assert backend.stats().active == 2000
        assert (resident_bytes() - before) / 2000 < 4096  # the client sockets of this test included
        assert get(http_port) == "one /"
        assert cpu_share() < 0.2
        backend.hold()
        assert all(is_reset(client) for client in clients)
    finally:
        for client in clients:
            client.close()
    assert backend.stats().dropped == 2000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_want_of_descriptors_delays_clients_without_spinning(gateway: Gateway, one: Server) -> None:
    port = gateway.listen(opened(gateway, one), GREETER).port
    clients = [socket.socket() for _ in range(20)]
    highest = os.dup(0)
    os.close(highest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        five_and_a_half = 11
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + five_and_a_half, hard))
        for client in clients:
            client.settimeout(WAIT_S)
            client.connect(("127.0.0.1", port))
        assert eventually(lambda: gateway.stats().active == 5)
        assert cpu_share() < 0.2
        assert gateway.stats().refused == 0
        for client in clients:  # each that leaves makes room for another
            assert client.recv(10) == b"one\n"
            client.close()
        assert eventually(lambda: gateway.stats().active == 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for client in clients:
            client.close()


# Holding


def test_connection_to_a_new_backend_waits_until_it_is_opened(gateway: Gateway, one: Server) -> None:
    backend = gateway.add_backend()
    with dial(gateway.listen(backend, GREETER).port) as client:
        assert eventually(lambda: backend.stats().parked == 1)
        backend.open(one.netns_fd)
        assert client.recv(10) == b"one\n"
    assert backend.stats().parked == 0


def test_100_requests_that_arrive_during_a_reset_are_served_by_the_new_instance(
    gateway: Gateway, one: Server, two: Server
) -> None:
    backend = opened(gateway, one)
    port = gateway.listen(backend, HTTP).port
    assert get(port) == "one /"
    backend.hold()
    with ThreadPoolExecutor(100) as executor:
        answers = [executor.submit(get, port, f"/{i}") for i in range(100)]
        assert eventually(lambda: backend.stats().parked == 100)
        backend.open(two.netns_fd)
        assert [answer.result(WAIT_S) for answer in answers] == [f"two /{i}" for i in range(100)]
    assert backend.stats().refused == 0


def test_hold_resets_what_is_in_use_before_it_returns(gateway: Gateway, one: Server) -> None:
    backend = opened(gateway, one)
    with dial(gateway.listen(backend, ECHO).port) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        backend.hold()
        client.setblocking(False)
        assert is_reset(client)
    assert backend.stats().dropped == 1
    assert backend.stats().active == 0


def test_connections_and_ports_end_while_a_child_being_started_shares_their_descriptors(
    gateway: Gateway, one: Server
) -> None:
    """A child has copies of all descriptors until its exec; duplicates are what they are to the kernel."""
    backend = opened(gateway, one)
    listener = gateway.listen(backend, DEAF)
    before = descriptors()
    with dial(listener.port) as client:
        assert read_exactly(client, 5) == b"deaf\n"
        shared = [os.dup(fd) for fd in descriptors() - before - {client.fileno()}]
        shared += [os.dup(fd) for fd in before if listens_at(fd, listener.port)]
        try:
            assert len(shared) == 3
            backend.hold()
            client.setblocking(False)
            assert is_reset(client)
            listener.close()
            gateway.listen(backend, DEAF, port=listener.port)
            time.sleep(0.05)
            assert gateway.stats().active == 0
        finally:
            for fd in shared:
                os.close(fd)


def descriptors() -> set[int]:
    """Return the open descriptors, the one that reads the list left out."""
    return {fd for fd in (int(entry.name) for entry in Path("/proc/self/fd").iterdir()) if is_open(fd)}


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def listens_at(fd: int, port: int) -> bool:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    with socket.socket(fileno=os.dup(fd)) as candidate:
        return candidate.getsockname()[1:2] == (port,) and bool(
            candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        )


def test_open_on_an_open_backend_moves_to_the_new_namespace(
    gateway: Gateway, one: Server, two: Server
) -> None:
    backend = opened(gateway, one)
    port = gateway.listen(backend, GREETER).port
    with dial(port) as old:
        assert old.recv(10) == b"one\n"
        backend.open(two.netns_fd)
        assert is_reset(old)
    with dial(port) as new:
        assert new.recv(10) == b"two\n"


def test_connection_that_has_carried_nothing_waits_instead_of_being_dropped(
    gateway: Gateway, one: Server, two: Server
) -> None:
    backend = opened(gateway, one)
    with dial(gateway.listen(backend, ECHO).port) as client:
        assert eventually(lambda: backend.stats().active == 1)
        backend.hold()
        assert backend.stats().parked == 1
        client.sendall(b"hello")
        backend.open(two.netns_fd)
        assert read_exactly(client, 5) == b"hello"
    assert backend.stats().dropped == 0


def test_client_that_leaves_while_waiting_never_reaches_the_new_instance(
    gateway: Gateway, one: Server
) -> None:
    backend = gateway.add_backend()
    with dial(gateway.listen(backend, ECHO).port) as client:
        client.sendall(b"order one lamp")
        assert eventually(lambda: backend.stats().parked == 1)
    assert eventually(lambda: backend.stats().parked == 0)
    backend.open(one.netns_fd)
    assert backend.stats().bytes_in == 0


def test_hold_keeps_no_reference_to_the_namespace(gateway: Gateway) -> None:
    with running_server("short-lived") as server:
        backend = opened(gateway, server)
        with dial(gateway.listen(backend, GREETER).port) as client:
            assert client.recv(20) == b"short-lived\n"
            inode = os.fstat(server.netns_fd).st_ino
            backend.hold()
    links = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert Path(f"net:[{inode}]") not in links


def test_no_more_may_wait_than_allowed(one: Server) -> None:
    with gateway_that_leaks_nothing(max_parked=3) as gateway:
        backend = gateway.add_backend()
        port = gateway.listen(backend, GREETER).port
        clients = [dial(port) for _ in range(3)]
        assert eventually(lambda: backend.stats().parked == 3)
        assert is_turned_away(port)
        assert is_turned_away(port)
        assert backend.stats().refused == 2
        backend.open(one.netns_fd)
        assert [client.recv(10) for client in clients] == [b"one\n"] * 3
        for client in clients:
            client.close()


def test_connection_that_waits_longer_than_the_hold_timeout_is_closed() -> None:
    with gateway_that_leaks_nothing(hold_timeout_s=0.2) as gateway:
        backend = gateway.add_backend()
        with dial(gateway.listen(backend, HTTP).port) as client:
            began = time.monotonic()
            assert is_reset(client)
            assert 0.15 < time.monotonic() - began < 2
        assert backend.stats().parked == 0


def test_resets_under_load_never_mix_instances_nor_lose_a_waiting_client(
    gateway: Gateway, one: Server, two: Server
) -> None:
    backend = gateway.add_backend()
    port = gateway.listen(backend, HTTP).port
    is_over = threading.Event()

    def browse() -> tuple[int, int]:
        n_served = n_cut = 0
        while not is_over.is_set():
            try:
                assert get(port, "/x") in ("one /x", "two /x")
                n_served += 1
            except (ConnectionError, http.client.HTTPException):
                n_cut += 1
        return n_served, n_cut

    with ThreadPoolExecutor(8) as executor:
        browsers = [executor.submit(browse) for _ in range(8)]
        for i in range(60):
            backend.hold()
            backend.open((one, two)[i % 2].netns_fd)
            time.sleep(0.01)
        is_over.set()
        outcomes = [browser.result(WAIT_S) for browser in browsers]
    assert sum(n_served for n_served, _ in outcomes) > 60
    assert eventually(lambda: backend.stats().active == backend.stats().parked == 0)
    stats = backend.stats()
    assert stats.refused == 0
    assert sum(n_cut for _, n_cut in outcomes) <= stats.dropped


# Handles


def test_removed_backend_ends_its_connections_and_refuses_new_ones(gateway: Gateway, one: Server) -> None:
    backend, held = opened(gateway, one), gateway.add_backend()
    port, held_port = gateway.listen(backend, GREETER).port, gateway.listen(held, GREETER).port
    with dial(port) as used, dial(held_port) as waiting:
        assert used.recv(10) == b"one\n"
        assert eventually(lambda: held.stats().parked == 1)
        backend.close()
        held.close()
        assert is_reset(used)
        assert is_reset(waiting)
    assert is_turned_away(port)


def test_closed_listener_frees_its_port_and_leaves_connections_alone(gateway: Gateway, one: Server) -> None:
    listener = gateway.listen(opened(gateway, one), ECHO)
    with dial(listener.port) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            dial(listener.port)
        client.sendall(b"b")
        assert client.recv(1) == b"b"


def test_what_is_closed_twice_or_used_after_is_unknown(gateway: Gateway, one: Server) -> None:
    backend, other = gateway.add_backend(), opened(gateway, one)
    listener, socks = gateway.listen(other, HTTP), gateway.socks({})
    for each in (backend, listener, socks):
        each.close()
    uses: list[Callable[[], object]] = [
        backend.close,
        backend.hold,
        backend.stats,
        lambda: backend.open(one.netns_fd),
        lambda: gateway.listen(backend, HTTP),
        lambda: gateway.socks({("shop.test", 80): (backend, HTTP)}),
        listener.close,
        socks.close,
        lambda: socks.refused,
    ]
    for use in uses:
        with pytest.raises(KernelError) as failure:
            use()
        assert failure.value.errno == errno.ENOENT


def test_closed_gateway_refuses_every_call_and_may_be_closed_again(one: Server) -> None:
    gateway = Gateway()
    backend = gateway.add_backend()
    gateway.close()
    gateway.close()
    for use in (backend.hold, backend.close, gateway.add_backend, gateway.stats):
        with pytest.raises(KernelError) as failure:
            use()
        assert failure.value.errno == errno.ESHUTDOWN


def test_gateway_closed_while_busy_ends_every_client(one: Server) -> None:
    with gateway_that_leaks_nothing() as gateway, ThreadPoolExecutor(16) as executor:
        backend, held = opened(gateway, one), gateway.add_backend()
        source, waiting = gateway.listen(backend, SOURCE).port, gateway.listen(held, HTTP).port
        socks = gateway.socks({("shop.test", 80): (held, HTTP)})

        def download() -> int:
            with dial(source) as client:
                client.sendall(b"%d\n" % (1000 * MIB))
                return len(read_all(client))

        downloads = [executor.submit(download) for _ in range(8)]
        waiters = [executor.submit(get, waiting) for _ in range(4)]
        callers = [executor.submit(call_until_shut_down, backend) for _ in range(2)]
        with dial(socks.port) as mute:
            assert eventually(lambda: gateway.stats().parked == 4 and gateway.stats().active == 8)
            gateway.close()
            assert is_reset(mute)
        clients: list[Future[Any]] = [*downloads, *waiters]
        for client in clients:
            assert isinstance(client.exception(WAIT_S), (ConnectionError, http.client.HTTPException))
        assert [caller.result(WAIT_S) for caller in callers] == [errno.ESHUTDOWN] * 2


def call_until_shut_down(backend: Backend) -> int:
    while True:
        try:
            backend.stats()
        except KernelError as failure:
            assert failure.errno is not None
            return failure.errno


def test_gateway_without_other_references_is_kept_by_its_parts(one: Server) -> None:
    backend = opened(Gateway(), one)
    assert backend.stats().active == 0


def test_open_refuses_a_descriptor_that_is_no_network_namespace(gateway: Gateway) -> None:
    backend = gateway.add_backend()
    for path in ("/proc/self/ns/mnt", "/dev/null"):
        fd = os.open(path, os.O_RDONLY)
        with pytest.raises(KernelError, match="check network namespace"):
            backend.open(fd)
        os.close(fd)


def test_failing_listen_names_address_and_port(gateway: Gateway) -> None:
    backend = gateway.add_backend()
    taken = gateway.listen(backend, HTTP)
    with pytest.raises(KernelError, match=rf"bind on 127.0.0.1 port {taken.port}: EADDRINUSE"):
        gateway.listen(backend, HTTP, port=taken.port)
    with pytest.raises(KernelError, match=r"parse address .* on localhost: EINVAL"):
        gateway.listen(backend, HTTP, address="localhost")
    with pytest.raises(KernelError, match=r"check target port"):
        gateway.listen(backend, 0)


def test_calls_from_many_threads_are_all_done(gateway: Gateway, one: Server) -> None:
    def use_backends() -> None:
        for _ in range(50):
            backend = opened(gateway, one)
            listener = gateway.listen(backend, HTTP)
            backend.hold()
            listener.close()
            backend.close()

    with ThreadPoolExecutor(8) as executor:
        for future in [executor.submit(use_backends) for _ in range(8)]:
            future.result(WAIT_S)


# SOCKS

NO_AUTHENTICATION = b"\x05\x01\x00"
CONNECT, BIND, ASSOCIATE = 1, 2, 3


def by_name(host: bytes, port: int, command: int = CONNECT) -> bytes:
    return bytes([5, command, 0, 3, len(host)]) + host + port.to_bytes(2, "big")


def by_address(address: str, port: int) -> bytes:
    family, kind = (socket.AF_INET6, 4) if ":" in address else (socket.AF_INET, 1)
    return bytes([5, CONNECT, 0, kind]) + socket.inet_pton(family, address) + port.to_bytes(2, "big")


def ask(port: int, request: bytes) -> tuple[int, socket.socket]:
    """Return the reply's code and the socket."""
    client = dial(port)
    client.sendall(NO_AUTHENTICATION)
    assert read_exactly(client, 2) == b"\x05\x00"
    client.sendall(request)
    reply = read_exactly(client, 10)
    assert reply[0] == 5
    assert reply[2:] == b"\x00\x01" + bytes(6)
    return reply[1], client


def reply_code(port: int, request: bytes) -> int:
    code, client = ask(port, request)
    with client:
        if code != 0:
            assert client.recv(1) == b""
    return code


@pytest.mark.parametrize(
    "request_",
    [
        by_name(b"shop.test", 80),
        by_name(b"SHOP.Test", 80),
        by_name(b"shop.test.", 80),
        by_name(b"10.1.2.3", 80),
        by_address("10.1.2.3", 80),
        by_name(b"fd00:0::1", 80),
        by_address("fd00::1", 80),
    ],
)
def test_destination_in_the_table_is_reached(gateway: Gateway, one: Server, request_: bytes) -> None:
    backend = opened(gateway, one)
    hosts = ["Shop.test", "10.1.2.3", "fd00::1"]
    socks = gateway.socks({(host, 80): (backend, GREETER) for host in hosts})
    code, client = ask(socks.port, request_)
    with client:
        assert code == 0
        assert client.recv(10) == b"one\n"
    assert socks.refused == 0


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (by_name(b"elsewhere.test", 80), 2),
        (by_name(b"shop.test", 81), 2),
        (by_name(b"shop.test\x00", 80), 2),
        (by_name(b"shop.test\x00.evil", 80), 2),
        (by_name(b"shop.tes", 80), 2),
        (by_name(b"", 80), 2),
        (by_name(b"x" * 255, 80), 2),
        (by_name(b"127.0.0.1", HTTP), 2),
        (by_address("127.0.0.1", HTTP), 2),
        (by_address("::1", 80), 2),
        (by_name(b"shop.test", 80, BIND), 7),
        (by_name(b"shop.test", 80, ASSOCIATE), 7),
        (by_name(b"shop.test", 80, 99), 7),
        (b"\x05\x01\x00\x09\x04", 8),
    ],
)
def test_anything_else_is_refused_with_its_code_and_counted(
    gateway: Gateway, one: Server, request_: bytes, code: int
) -> None:
    socks = gateway.socks({("shop.test", 80): (opened(gateway, one), HTTP)})
    assert reply_code(socks.port, request_) == code
    assert socks.refused == 1
    assert gateway.stats().active == 0


def test_destination_that_does_not_listen_is_refused_as_such(gateway: Gateway, one: Server) -> None:
    backend = opened(gateway, one)
    socks = gateway.socks({("shop.test", 80): (backend, NOBODY)})
    assert reply_code(socks.port, by_name(b"shop.test", 80)) == 5
    assert backend.stats().refused == 1
    assert socks.refused == 0


def test_destination_whose_backend_is_gone_is_unreachable(gateway: Gateway) -> None:
    backend = gateway.add_backend()
    socks = gateway.socks({("shop.test", 80): (backend, HTTP)})
    backend.close()
    assert reply_code(socks.port, by_name(b"shop.test", 80)) == 4


def test_socks_client_waits_for_a_held_backend(gateway: Gateway, one: Server) -> None:
    backend = gateway.add_backend()
    socks = gateway.socks({("shop.test", 80): (backend, GREETER)})
    with ThreadPoolExecutor(1) as executor:
        answer = executor.submit(ask, socks.port, by_name(b"shop.test", 80))
        assert eventually(lambda: backend.stats().parked == 1)
        assert not answer.done()
        backend.open(one.netns_fd)
        code, client = answer.result(WAIT_S)
    with client:
        assert code == 0
        assert client.recv(10) == b"one\n"


def test_socks_client_that_waits_too_long_is_told(one: Server) -> None:
    with gateway_that_leaks_nothing(hold_timeout_s=0.2) as gateway:
        socks = gateway.socks({("shop.test", 80): (gateway.add_backend(), HTTP)})
        assert reply_code(socks.port, by_name(b"shop.test", 80)) == 4


def test_handshake_in_single_bytes_is_understood(gateway: Gateway, one: Server) -> None:
    socks = gateway.socks({("shop.test", 80): (opened(gateway, one), GREETER)})
    with dial(socks.port) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in NO_AUTHENTICATION + by_name(b"shop.test", 80):
            client.sendall(bytes([byte]))
            time.sleep(0.002)
        assert read_exactly(client, 12) == b"\x05\x00\x05\x00\x00\x01" + bytes(6)
        assert client.recv(10) == b"one\n"


def test_bytes_sent_behind_the_handshake_belong_to_the_stream(gateway: Gateway, one: Server) -> None:
    socks = gateway.socks({("shop.test", 80): (opened(gateway, one), ECHO)})
    with dial(socks.port) as client:
        client.sendall(NO_AUTHENTICATION + by_name(b"shop.test", 80) + b"early")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client)[12:] == b"early<end>"


def test_client_that_insists_on_authentication_is_refused(gateway: Gateway) -> None:
    socks = gateway.socks({})
    for greeting in (b"\x05\x01\x02", b"\x05\x00"):
        with dial(socks.port) as client:
            client.sendall(greeting)
            assert read_all(client) == b"\x05\xff"
    assert socks.refused == 2


@pytest.mark.parametrize("words", [b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n"])
def test_other_protocols_are_cut_off(gateway: Gateway, words: bytes) -> None:
    socks = gateway.socks({})
    with dial(socks.port) as client:
        client.sendall(words)
        assert is_reset(client)
    assert socks.refused == 1


@pytest.mark.parametrize(
    "said", [b"", b"\x05", NO_AUTHENTICATION, NO_AUTHENTICATION + b"\x05\x01\x00\x03\x50shop"]
)
def test_client_that_does_not_finish_its_handshake_is_cut_off(said: bytes) -> None:
    with gateway_that_leaks_nothing(handshake_timeout_s=0.2) as gateway:
        socks = gateway.socks({})
        with dial(socks.port) as client:
            client.sendall(said)
            with suppress(ConnectionResetError):
                assert read_all(client) in (b"", b"\x05\x00")
        assert socks.refused == 1


def test_worlds_with_the_same_names_are_apart(gateway: Gateway, one: Server, two: Server) -> None:
    first = gateway.socks({("shop.test", 80): (opened(gateway, one), GREETER)})
    second = gateway.socks(
        {
            ("shop.test", 80): (opened(gateway, two), GREETER),
            ("forum.test", 80): (opened(gateway, two), GREETER),
        }
    )
    for socks, name in ((first, b"one\n"), (second, b"two\n")):
        code, client = ask(socks.port, by_name(b"shop.test", 80))
        with client:
            assert (code, client.recv(10)) == (0, name)
    assert reply_code(second.port, by_name(b"forum.test", 80)) == 0
    assert reply_code(first.port, by_name(b"forum.test", 80)) == 2
    assert (first.refused, second.refused) == (1, 0)


def test_table_that_cannot_be_meant_is_refused(gateway: Gateway) -> None:
    backend = gateway.add_backend()
    with pytest.raises(KernelError, match=r"add SOCKS destination on shop.test:80: EEXIST"):
        gateway.socks({("shop.test", 80): (backend, HTTP), ("SHOP.test", 80): (backend, HTTP)})
    with pytest.raises(KernelError, match=r"check port \(not 0\) on shop.test:0"):
        gateway.socks({("shop.test", 0): (backend, HTTP)})
    with pytest.raises(KernelError, match=r"check host"):
        gateway.socks({("shop test", 80): (backend, HTTP)})
    for host in ("", "x" * 256, "bücher.test"):
        with pytest.raises(ValueError, match="use 1 to 255 ASCII"):
            gateway.socks({(host, 80): (backend, HTTP)})


@pytest.fixture(scope="module")
def attacked(one: Server) -> Iterator[tuple[Gateway, int]]:
    with gateway_that_leaks_nothing(handshake_timeout_s=5.0) as gateway:
        socks = gateway.socks({("shop.test", 80): (opened(gateway, one), GREETER)})
        yield gateway, socks.port


VALID = NO_AUTHENTICATION + by_name(b"shop.test", 80)


@st.composite
def damaged_handshakes(draw: st.DrawFn) -> bytes:
    words = bytearray(draw(st.sampled_from([VALID, b"\x05\xff" + bytes(255) + VALID[3:], VALID * 3])))
    for _ in range(draw(st.integers(0, 4))):
        bit = draw(st.integers(0, 8 * len(words) - 1))
        words[bit // 8] ^= 1 << bit % 8
    words = words[: draw(st.integers(0, len(words)))]
    return bytes(words) + draw(st.binary(max_size=600))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=700), damaged_handshakes()), max_size=4), st.booleans())
def test_hostile_handshakes_reach_nothing_and_harm_nobody(
    attacked: tuple[Gateway, int], pieces: list[bytes], does_end: bool
) -> None:
    gateway, port = attacked
    with dial(port) as hostile:
        with suppress(OSError):
            for piece in pieces:
                hostile.sendall(piece)
            if does_end:
                hostile.shutdown(socket.SHUT_WR)
        code, client = ask(port, by_name(b"shop.test", 80))
        with client:
            assert (code, client.recv(10)) == (0, b"one\n")
        if does_end:
            with suppress(ConnectionError):
                said = read_all_but_the_greeter(hostile)
                assert len(said) <= 12
    assert eventually(lambda: gateway.stats().active == 0)


def read_all_but_the_greeter(hostile: socket.socket) -> bytes:
    """Read to the end, or to the greeting of the one destination that there is."""
    said = b""
    while not said.endswith(b"one\n") and (data := hostile.recv(100)):
        said += data
    return said.removesuffix(b"one\n")


# Connecting without a gateway


def test_connect_in_namespace_reaches_the_server_inside(one: Server) -> None:
    home = Path("/proc/thread-self/ns/net").readlink()
    with connect_in_namespace(one.netns_fd, GREETER, WAIT_S) as connection:
        assert connection.recv(10) == b"one\n"
        assert connection.gettimeout() == WAIT_S
        assert not connection.get_inheritable()
    assert Path("/proc/thread-self/ns/net").readlink() == home


def test_connect_in_namespace_names_a_port_that_does_not_listen(one: Server) -> None:
    with pytest.raises(KernelError, match=rf"127.0.0.1:{NOBODY} in network namespace: ECONNREFUSED"):
        connect_in_namespace(one.netns_fd, NOBODY, WAIT_S)


def test_connect_in_namespace_gives_up_after_its_timeout(one: Server) -> None:
    began = time.monotonic()
    with pytest.raises(KernelError, match="ETIMEDOUT"):
        connect_in_namespace(one.netns_fd, FULL, 0.2)
    assert 0.15 < time.monotonic() - began < 2


def test_connect_in_namespace_refuses_another_descriptor() -> None:
    with pytest.raises(KernelError, match="setns on network namespace descriptor"):
        connect_in_namespace(0, HTTP, WAIT_S)


def test_connect_in_namespace_leaves_every_thread_at_home(one: Server, two: Server) -> None:
    home = Path("/proc/self/ns/net").readlink()

    def connect_often(server: Server) -> None:
        for _ in range(50):
            with connect_in_namespace(server.netns_fd, GREETER, WAIT_S) as connection:
                assert connection.recv(10) == server.name.encode() + b"\n"
            assert Path("/proc/thread-self/ns/net").readlink() == home

    with ThreadPoolExecutor(8) as executor:
        for future in [executor.submit(connect_often, server) for server in (one, two) * 4]:
            future.result(WAIT_S)
