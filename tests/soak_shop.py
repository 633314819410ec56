"""Resets of one shop in a row, each proven pristine after it was changed; nothing grows meanwhile.

Run: pytest tests/soak_shop.py (1,000 rounds; WSRT_ROUNDS=50 for fewer)
"""

from __future__ import annotations

import os
import time

from webserv_rt import Host
from webserv_rt.bench.census import growth, take_census
from webserv_rt.build import build
from webserv_rt.cli.demo import fingerprint
from webserv_rt.cli.shopper import buy
from webserv_rt.recipe import RECIPES
from webserv_rt.storage.pool import Pool

N_ROUNDS = int(os.environ.get("WSRT_ROUNDS", "1000"))
WARM_UP_ROUNDS = 5


def test_every_reset_is_pristine_and_nothing_grows(pool: Pool) -> None:
    with Host(pool.path) as host:
        build(host, RECIPES / "shop")
        with host.launch("shop") as shop:
            pristine = fingerprint(shop)
            for number in range(N_ROUNDS):
                if number == WARM_UP_ROUNDS:
                    host.reaper.drain()
                    before = take_census(pool.path)
                buy(shop.url, "shop.test")
                shop.exec(
                    ["/bin/sh", "-c", f"echo {number} > /tmp/left; rm /srv/shop/serve.py; touch /srv/new"]
                )
                assert shop.changes(), number
                shop.reset()
                assert fingerprint(shop) == pristine, number
            host.reaper.drain()
            deadline = time.monotonic() + 30
            while (left := growth(before, take_census(pool.path))) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert left == {}
        host.remove_base("shop")
