"""webserv-rt demo"""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.table import Table

from webserv_rt.bench.figures import percentiles
from webserv_rt.build import build
from webserv_rt.cli.app import PoolOption, app, err, human_bytes, out, progress_bar
from webserv_rt.errors import WebservError
from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.recipe import RECIPES
from webserv_rt.storage.pool import Pool
from webserv_rt.storage.pool_errors import PoolNotFound
from webserv_rt.storage.scan import scan_tree

N_SHOPS = 16
POOL_BYTES = 32 << 30
DATA = "srv/shop/data"
DUMP = (
    "import sqlite3,sys;"
    "sys.stdout.write('\\n'.join(sqlite3.connect('file:/srv/shop/data/shop.sqlite3?mode=ro',uri=True).iterdump()))"
)


@app.command()
def demo(
    pool: PoolOption,
    n: Annotated[int, typer.Option("-n", min=2, help="How many shops.")] = N_SHOPS,
) -> None:
    """Start shops from one base, change one, show the others untouched, prove it pristine again."""
    began = time.perf_counter()
    _ensure_pool(pool)
    with Host(pool) as host, ExitStack() as launched:
        with progress_bar("building the shop") as progress:
            build(host, RECIPES / "shop", say=lambda line: err.print(f"[dim]{line}"), progress=progress)
        out.print(f"[bold]{n} shops from one read-only base[/]")
        used_before = host.pool.status().used_bytes
        start = time.perf_counter()
        shops = [
            launched.enter_context(host.create("shop", strategy="standby" if i == 0 else "cold"))
            for i in range(n)
        ]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(Instance.launch, shops))
        out.print(f"all {n} answer after {time.perf_counter() - start:.1f} s; the first one: {shops[0].url}")
        pristine = fingerprint(shops[0])
        states = [_state(shop) for shop in shops]

        number = _place_order(shops[0])
        changed = fingerprint(shops[0])
        out.print(
            f"order {number} placed in {shops[0].name}; it changed {', '.join(shops[0].changes().modified)}"
        )
        if changed == pristine or _state(shops[0]) == states[0]:
            raise WebservError("the order left no trace in the shop: this demo proves nothing")
        if [_state(shop) for shop in shops[1:]] != states[1:]:
            raise WebservError("an order in one shop is seen in another one")
        out.print(f"the other {n - 1} shops are untouched: each still has {states[1]['orders']} orders")

        host.await_spares("shop")
        timing = shops[0].reset()
        after = fingerprint(shops[0])
        _print_proof(pristine, changed, after)
        if after != pristine:
            raise WebservError("the reset shop differs from its start state")
        standby = [timing.ready_ms, *_more_resets(host, shops[0])]
        cold = [shop.reset().ready_ms for shop in shops[1:6]]
        used = host.pool.status().used_bytes - used_before
        memory = sum(shop.statistics().pss_bytes for shop in shops) / n
        _print_times(standby, cold)
        out.print(
            f"each shop holds {human_bytes(used / (n + 1))} of storage, {human_bytes(memory)} of memory (PSS)"
        )
    out.print(f"everything given back; {time.perf_counter() - began:.1f} s in all")


def _ensure_pool(path: Path) -> None:
    try:
        Pool.open(path).close()
    except PoolNotFound:
        err.print(f"[dim]creating the pool {path} (sparse, grows to {human_bytes(POOL_BYTES)} at most)")
        Pool.create(path, size_bytes=POOL_BYTES).close()


def _state(shop: Instance) -> dict[str, Any]:
    return dict(httpx.get(f"{shop.url}api/state", headers={"Host": "shop.test"}).raise_for_status().json())


def _place_order(shop: Instance) -> str:
    """Buy something as a visitor does: product page, cart, checkout."""
    from webserv_rt.cli.shopper import buy

    return buy(shop.url, "shop.test")


def fingerprint(shop: Instance) -> dict[str, str]:
    """Return the digest of the database's content and of every file of the shop as the instance sees it."""
    dump = shop.exec(["/opt/venv/bin/python3", "-c", DUMP], user="shop")
    if dump.status != 0:
        raise WebservError(f"dumping the database failed: {dump.stderr.decode()}")
    files = hashlib.sha256()
    root_id = shop.incarnation.root_id
    for entry in scan_tree(shop.root, exclude=("proc", "sys", "dev", "usr", "opt/venv")):
        if not entry.path.startswith(DATA + "/shop.sqlite3"):
            files.update(repr(entry._replace(uid=entry.uid - root_id, gid=entry.gid - root_id)).encode())
    return {"database": hashlib.sha256(dump.stdout).hexdigest(), "files": files.hexdigest()}


def _more_resets(host: Host, shop: Instance) -> list[float]:
    samples = []
    for _ in range(5):
        host.await_spares("shop")
        samples.append(shop.reset().ready_ms)
    return samples


def _print_proof(pristine: dict[str, str], changed: dict[str, str], after: dict[str, str]) -> None:
    table = Table("", "start state", "after the order", "after the reset", "", header_style="bold")
    for name in pristine:
        verdict = "[bold green]pristine" if after[name] == pristine[name] else "[bold red]DIFFERS"
        table.add_row(name, pristine[name][:16], changed[name][:16], after[name][:16], verdict)
    out.print(table)


def _print_times(standby: list[float], cold: list[float]) -> None:
    table = Table("reset to the first correct answer, ms", "p50", "max", "rounds", header_style="bold")
    for name, samples in (("standby", standby), ("cold", cold)):
        figures = percentiles(samples)
        table.add_row(name, f"{figures['p50']:.1f}", f"{figures['max']:.1f}", str(len(samples)))
    out.print(table)
