"""webserv-rt run"""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from webserv_rt.cli.app import PoolOption, app, human_bytes, out
from webserv_rt.host import Host, StrategyName
from webserv_rt.instance import Instance

REFRESH_S = 1.0
# More at once only makes each slower: starting a site is processor time.
N_LAUNCHERS = 4


@app.command()
def run(
    base: str,
    pool: PoolOption,
    n: Annotated[int, typer.Option("-n", min=1, help="How many instances.")] = 1,
    strategy: Annotated[StrategyName, typer.Option(help="How a reset comes about.")] = "cold",
    first_port: Annotated[
        int, typer.Option(help="Ports are counted up from here; 0: the kernel chooses.")
    ] = 0,
) -> None:
    """Run N instances of BASE in the foreground until Ctrl-C, then remove them."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Host(pool) as host, ExitStack() as launched, ThreadPoolExecutor(N_LAUNCHERS) as threads:
            instances = [
                launched.enter_context(
                    host.create(base, strategy=strategy, port=first_port + index if first_port else 0)
                )
                for index in range(n)
            ]
            launching = [threads.submit(instance.launch) for instance in instances]
            with Live(_table(instances), console=out, auto_refresh=False) as live:
                while True:
                    for future in launching:
                        if future.done():
                            future.result()
                    live.update(_table(instances), refresh=True)
                    time.sleep(REFRESH_S)
    except KeyboardInterrupt:
        out.print("all instances removed")


def _table(instances: list[Instance]) -> Table:
    table = Table("instance", "state", "url", "ready in", "processes", "memory", "cpu", header_style="bold")
    for instance in instances:
        cells = ["-"] * 4
        if instance.state == "ready":
            used = instance.incarnation.cgroup.statistics()
            timing = instance.timing
            cells = [
                f"{timing.ready_ms:.0f} ms" if timing else "-",
                str(used.pids if used.pids is not None else "-"),
                human_bytes(used.memory_bytes),
                f"{used.cpu_us / 1e6:.2f} s" if used.cpu_us is not None else "-",
            ]
        table.add_row(instance.name, instance.state, instance.url, *cells)
    return table
