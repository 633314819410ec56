"""WordPress and Redmine: resets beside a shell script that does the same, and from a spare.

Run: pytest tests/bench_sites.py (builds both bases first, some minutes)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webserv_rt import Host
from webserv_rt.bench.figures import Result
from webserv_rt.bench.runner import measure_base
from webserv_rt.build import build
from webserv_rt.host import default_pool
from webserv_rt.recipe import RECIPES
from webserv_rt.storage.pool import Pool
from webserv_rt.storage.pool_errors import PoolNotFound

N_ROUNDS = int(os.environ.get("WSRT_ROUNDS", "30"))
POOL_BYTES = 32 << 30


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


@pytest.mark.parametrize("site", ["wordpress", "redmine"])
def test_standby_reset(figures: dict[str, Any], sites: Path, site: str) -> None:
    result = measure_base(sites, site, "reset", strategy="standby", rounds=N_ROUNDS)
    record(figures, result)
    assert result["ready_ms"]["p50"] <= 15


def test_cold_redmine(figures: dict[str, Any], sites: Path) -> None:
    record(figures, measure_base(sites, "redmine", "reset", strategy="cold", rounds=max(3, N_ROUNDS // 5)))
