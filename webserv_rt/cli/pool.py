"""webserv-rt pool"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from webserv_rt.cli.app import JsonOption, PoolOption, app, human_bytes, out, print_json, print_rows
from webserv_rt.storage.pool import Pool

pool_app = typer.Typer(
    no_args_is_help=True, help="The directory on a reflink filesystem that holds everything else."
)
app.add_typer(pool_app, name="pool")

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMGT]?)i?B?", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size: write 20G or 500M")
    return int(match[1]) * _UNITS[match[2]]


SizeOption = Annotated[
    int, typer.Option("--size", parser=_parse_size, metavar="SIZE", help="Such as 20G or 500M.")
]


@pool_app.command()
def create(pool: PoolOption, size: SizeOption = "32G") -> None:  # type: ignore[assignment]
    """Make a pool: the directory itself on XFS or btrfs, else a sparse XFS image of SIZE mounted on it."""
    with Pool.create(pool, size_bytes=size) as created:
        status = created.status()
    out.print(f"pool {pool} on {status.filesystem}, {human_bytes(status.size_bytes)}")


@pool_app.command()
def status(pool: PoolOption, as_json: JsonOption = False) -> None:
    """Show how full the pool is and what lies in it."""
    with Pool.open(pool) as opened:
        found = asdict(opened.status())
    if as_json:
        print_json(found)
        return
    shown = {name: human_bytes(value) if name.endswith("_bytes") else value for name, value in found.items()}
    rows = [{"": name, "value": value} for name, value in shown.items()]
    print_rows(rows, ("", "value"), as_json=False, empty="")


@pool_app.command()
def grow(pool: PoolOption, size: SizeOption) -> None:
    """Grow the pool's image to SIZE while it is in use."""
    with Pool.open(pool) as opened:
        opened.grow(size)
    out.print(f"pool {pool} is now {human_bytes(size)}")


@pool_app.command()
def destroy(
    pool: PoolOption, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Remove the pool with all its bases; refused while something runs from it."""
    if not yes:
        typer.confirm(f"Remove {pool} with all its bases and snapshots?", abort=True)
    Pool.open(pool).destroy()
    out.print(f"pool {pool} removed")
