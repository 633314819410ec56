"""200 shops at once: each answers its own data, a fresh one takes hardly any storage, nothing is left.

Run: pytest tests/bench_density.py (WSRT_N_SHOPS=50 for fewer)
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from webserv_rt import Host, Instance
from webserv_rt.bench.census import growth, take_census
from webserv_rt.build import build
from webserv_rt.cli.shopper import buy
from webserv_rt.recipe import RECIPES
from webserv_rt.storage.pool import Pool

N_SHOPS = int(os.environ.get("WSRT_N_SHOPS", "200"))
FRESH_STORAGE_BYTES = 1 << 20
ORDER_EVERY = 10


@pytest.fixture(scope="module")
def shop_pool(pool: Pool) -> Iterator[Pool]:
    with Host(pool.path) as host:
        build(host, RECIPES / "shop")
        host.launch("shop").remove()
    yield pool
    with Host(pool.path) as host:
        host.remove_base("shop")


def used_bytes(pool: Pool) -> int:
    os.sync()
    return pool.status().used_bytes


def n_orders(shop: Instance) -> int:
    answer = httpx.get(f"{shop.url}api/state", headers={"Host": "shop.test"}, timeout=60)
    return int(answer.raise_for_status().json()["orders"])


def test_many_shops_at_once(figures: dict[str, Any], shop_pool: Pool) -> None:
    pool = shop_pool
    before, used_before = take_census(pool.path), used_bytes(pool)
    with Host(pool.path) as host, ThreadPoolExecutor(4) as threads:
        start = time.perf_counter()
        shops = list(threads.map(lambda _: host.launch("shop"), range(N_SHOPS)))
        figures["launch_all_s"] = round(time.perf_counter() - start, 2)
        storage = (used_bytes(pool) - used_before) / N_SHOPS
        seeded = n_orders(shops[0])
        for shop in shops[::ORDER_EVERY]:
            buy(shop.url, "shop.test")
        answers = list(threads.map(n_orders, shops))
        memory = sum(shop.statistics().pss_bytes for shop in shops) / N_SHOPS
        start = time.perf_counter()
        for shop in shops:
            shop.remove()
        host.reaper.drain()
        figures["remove_all_s"] = round(time.perf_counter() - start, 2)
    assert answers == [seeded + (index % ORDER_EVERY == 0) for index in range(N_SHOPS)]
    deadline = time.monotonic() + 30
    while (left := growth(before, take_census(pool.path))) and time.monotonic() < deadline:
        time.sleep(0.2)
    figures |= {
        "n_shops": N_SHOPS,
        "storage_bytes_each": round(storage),
        "pss_bytes_each": round(memory),
        "left": left,
    }
    assert left == {}
    assert storage <= FRESH_STORAGE_BYTES
