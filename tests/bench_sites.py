"""WordPress and Redmine: resets beside a shell script that does the same, and from a spare.

Run: pytest tests/bench_sites.py (builds both bases first, some minutes)
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webserv_rt import Host, Instance
from webserv_rt.bench.figures import Percentiles, Result, percentiles
from webserv_rt.bench.runner import measure_base
from webserv_rt.build import build
from webserv_rt.host import default_pool
from webserv_rt.readiness import request
from webserv_rt.recipe import RECIPES
from webserv_rt.storage.pool import Pool
from webserv_rt.storage.pool_errors import PoolNotFound

N_ROUNDS = int(os.environ.get("WSRT_ROUNDS", "30"))
POOL_BYTES = 32 << 30
STANDBY_MS = 15


@pytest.fixture(scope="module")
def sites() -> Iterator[Path]:
    """The default pool, where the bases stay for the next run."""
    path = default_pool()
    try:
        Pool.open(path).close()
    except PoolNotFound:
        Pool.create(path, size_bytes=POOL_BYTES).close()
    with Host(path) as host:
        for name in ("wordpress", "redmine"):
            build(host, RECIPES / name)
    yield path


def record(figures: dict[str, Any], result: Result) -> None:
    figures |= result
    assert result["errors"] == 0
    assert result["leaks"] == {}


def test_cold_wordpress_beats_a_shell_script(figures: dict[str, Any], sites: Path) -> None:
    script = RECIPES / "wordpress" / "cold-reset.sh"
    result = measure_base(sites, "wordpress", "reset", strategy="cold", rounds=N_ROUNDS, peers=[script])
    ratio = result["peers"]["cold-reset"]["ready_ms"]["p50"] / result["ready_ms"]["p50"]
    figures["times_faster_than_the_script"] = round(ratio, 3)
    record(figures, result)
    assert result["engine_ms"]["p50"] <= 15
    assert ratio >= 1.3


@pytest.mark.parametrize("path", ["/", "/wp-login.php"])
def test_standby_wordpress(figures: dict[str, Any], sites: Path, path: str) -> None:
    """The front page alone takes longer to render than the bar; the login page exercises the same stack."""
    samples, page = standby_samples(sites, "wordpress", path)
    figures |= {"reset_to_first_200_ms": samples, "the_same_page_warm_ms": page}
    assert samples["p50"] <= (STANDBY_MS if path != "/" else page["p50"] + STANDBY_MS)


def test_standby_redmine(figures: dict[str, Any], sites: Path) -> None:
    samples, page = standby_samples(sites, "redmine", "/")
    figures |= {"reset_to_first_200_ms": samples, "the_same_page_warm_ms": page}
    assert samples["p50"] <= STANDBY_MS


def standby_samples(pool: Path, site: str, path: str) -> tuple[Percentiles, Percentiles]:
    """Return milliseconds from the reset's call to the first 200 of `path`, and of the page asked again."""
    resets, pages = [], []
    with Host(pool) as host, host.launch(site, strategy="standby") as instance:
        for _ in range(N_ROUNDS):
            host.await_spares(site)
            host.reaper.drain()
            start = time.perf_counter()
            instance.reset()
            assert get(instance, path) == 200
            resets.append((time.perf_counter() - start) * 1000)
            for _ in range(3):
                start = time.perf_counter()
                assert get(instance, path) == 200
            pages.append((time.perf_counter() - start) * 1000)
    return percentiles(resets), percentiles(pages)


def get(instance: Instance, path: str) -> int:
    return request(instance.incarnation.network, instance.strategy.template.site, "GET", path)[0]


def test_cold_redmine(figures: dict[str, Any], sites: Path) -> None:
    record(figures, measure_base(sites, "redmine", "reset", strategy="cold", rounds=max(3, N_ROUNDS // 5)))
