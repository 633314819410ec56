"""The stock of network namespaces: always fresh, never short, nothing kept after its end."""

from __future__ import annotations

import os
import threading
import time

from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.namespace import new_network_namespace
from webserv_rt.stock import Stock


def network_stock(size: int) -> Stock[Descriptor]:
    return Stock(new_network_namespace, size)


def inode(namespace: Descriptor) -> int:
    return os.fstat(namespace.fileno()).st_ino


def await_full(stock: Stock[Descriptor], size: int) -> None:
    deadline = time.monotonic() + 10
    while len(stock._ready) < size:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_every_namespace_is_given_once_and_is_none_of_the_hosts() -> None:
    stock = network_stock(3)
    taken = [stock.take() for _ in range(10)]
    try:
        inodes = {inode(namespace) for namespace in taken}
        assert len(inodes) == 10
        assert os.stat("/proc/self/ns/net").st_ino not in inodes
    finally:
        for namespace in taken:
            namespace.close()
        stock.close()


def test_stock_is_filled_up_again_after_every_taking() -> None:
    stock = network_stock(2)
    await_full(stock, 2)
    stock.take().close()
    await_full(stock, 2)
    stock.close()


def test_threads_that_take_at_once_get_different_ones() -> None:
    stock = network_stock(4)
    taken: list[Descriptor] = []
    threads = [
        threading.Thread(target=lambda: [taken.append(stock.take()) for _ in range(20)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({inode(namespace) for namespace in taken}) == 160
    for namespace in taken:
        namespace.close()
    stock.close()


def test_closed_stock_keeps_neither_thread_nor_descriptor() -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        network_stock(2).close()
    stock = network_stock(5)
    await_full(stock, 5)
    stock.close()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_namespace_holds_loopback_alone_which_is_up() -> None:
    stock = network_stock(1)
    namespace = stock.take()
    seen: list[list[str]] = []

    def look() -> None:
        setns(namespace.fileno())
        with open("/proc/thread-self/net/dev") as file:
            seen.append([line.split(":")[0].strip() for line in file.readlines()[2:]])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    namespace.close()
    stock.close()
    assert seen == [["lo"]]


def setns(fd: int) -> None:
    """os.setns is new in Python 3.12."""
    import ctypes

    assert ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) == 0
