"""The application that the commands hang on, and what they share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from webserv_rt.host import default_pool

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Hundreds of isolated copies of a web application from one base, pristine again in milliseconds.",
)

out = Console()
err = Console(stderr=True)

PoolOption = Annotated[
    Path,
    typer.Option(
        "--pool", help="The pool's directory.", envvar="WEBSERV_RT_POOL", default_factory=default_pool
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """Print one JSON value on standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str
) -> None:
    """Print a listing as a table, or as a JSON array."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        out.print(empty)
        return
    table = Table(*columns, header_style="bold")
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    out.print(table)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show bytes done and in all on standard error while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def human_bytes(n_bytes: float | None) -> str:
    """Return a number of bytes with the unit that suits it."""
    if n_bytes is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n_bytes) < 1024 or unit == "GiB":
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    raise AssertionError("unreachable")
