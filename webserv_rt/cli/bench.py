"""webserv-rt bench"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from webserv_rt.bench.figures import Percentiles, Result
from webserv_rt.bench.plot import plot_result
from webserv_rt.bench.runner import Kind, measure_base
from webserv_rt.cli.app import JsonOption, PoolOption, app, human_bytes, out, print_json, progress_bar
from webserv_rt.host import StrategyName

bench = typer.Typer(no_args_is_help=True, help="Measure resets and launches, beside their peers.")
app.add_typer(bench, name="bench")

StrategyOption = Annotated[StrategyName, typer.Option(help="How a reset comes about.")]
RoundsOption = Annotated[int, typer.Option("-n", min=1, help="How many rounds.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw the figures to this file (png, svg, pdf).")
]
PeerOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--peer",
        exists=True,
        dir_okay=False,
        help="A script that does the same another way; may be repeated.",
    ),
]


@bench.command()
def reset(
    base: str,
    pool: PoolOption,
    strategy: StrategyOption = "cold",
    n: RoundsOption = 20,
    peer: PeerOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reset one instance of BASE again and again."""
    _measure("reset", base, pool, strategy, n, peer, plot, as_json)


@bench.command()
def launch(
    base: str,
    pool: PoolOption,
    strategy: StrategyOption = "cold",
    n: RoundsOption = 20,
    peer: PeerOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Launch and remove instances of BASE, one after the other."""
    _measure("launch", base, pool, strategy, n, peer, plot, as_json)


def _measure(
    kind: Kind,
    base: str,
    pool: Path,
    strategy: StrategyName,
    rounds: int,
    peer: list[Path] | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    with progress_bar(f"{kind} {base}") as progress:
        result = measure_base(
            pool,
            base,
            kind,
            strategy=strategy,
            rounds=rounds,
            peers=[path.resolve() for path in peer or ()],
            progress=progress,
        )
    if plot is not None:
        plot_result(result, plot)
    if as_json:
        print_json(result)
    else:
        _print(kind, result)


def _print(kind: Kind, result: Result) -> None:
    table = Table(
        f"{kind} of {result['site']}, {result['strategy']}, ms",
        "p50",
        "p95",
        "p99",
        "max",
        "ours / this (p50)",
    )
    ready = result["ready_ms"]
    _add(table, "engine (our own share)", result["engine_ms"], "")
    _add(table, "ready (first correct answer)", ready, "")
    for name, peer in result["peers"].items():
        _add(table, f"peer {name}, ready", peer["ready_ms"], f"{ready['p50'] / peer['ready_ms']['p50']:.2f}")
    out.print(table)
    memory = result["memory"]
    out.print(
        f"{result['rounds']} rounds, {result['errors']} errors, {result['resets_per_s']:g} per second, "
        f"{result['cpu_ms_per_reset']:g} ms of processor time each\n"
        f"one fresh instance: storage {human_bytes(result['storage_bytes'])}, "
        f"memory {human_bytes(memory['cgroup_bytes'])} by cgroup, {human_bytes(memory['pss_bytes'])} by PSS\n"
        f"left behind: {result['leaks'] or 'nothing'}"
    )


def _add(table: Table, name: str, figures: Percentiles, ratio: str) -> None:
    table.add_row(name, *(f"{figures[key]:.2f}" for key in ("p50", "p95", "p99", "max")), ratio)
