"""webserv-rt base"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from webserv_rt.build import build as build_recipe
from webserv_rt.cli.app import (
    JsonOption,
    PoolOption,
    app,
    err,
    human_bytes,
    out,
    print_json,
    print_rows,
    progress_bar,
)
from webserv_rt.host import Host
from webserv_rt.recipe import find_recipe
from webserv_rt.storage.base import Base
from webserv_rt.storage.pool import Pool
from webserv_rt.verify import verify as verify_base

base_app = typer.Typer(no_args_is_help=True, help="The read-only root filesystems that instances start from.")
app.add_typer(base_app, name="base")

SiteOption = Annotated[
    Path | None,
    typer.Option("--site", exists=True, dir_okay=False, help="The site spec (docs/site-spec.md)."),
]


@base_app.command("import")
def import_(source: str, name: str, pool: PoolOption, site: SiteOption = None) -> None:
    """Import SOURCE as the base NAME.

    SOURCE is a directory, a tar (plain or compressed), an OCI layout or archive, a docker archive, or
    podman:IMAGE:TAG.
    """
    with Host(pool) as host, progress_bar(f"importing {name}") as progress:
        _tell(host.import_base(source, name, site=site, progress=progress))


@base_app.command()
def build(
    recipe: str, pool: PoolOption, name: Annotated[str | None, typer.Option(help="Another name.")] = None
) -> None:
    """Build a base from RECIPE: the name of one of ours (shop, wordpress, redmine) or a directory."""
    with Host(pool) as host, progress_bar(f"building {recipe}") as progress:
        directory = find_recipe(recipe)
        _tell(
            build_recipe(
                host, directory, name=name, say=lambda line: err.print(line, style="dim"), progress=progress
            )
        )


@base_app.command()
def ls(pool: PoolOption, as_json: JsonOption = False) -> None:
    """List the bases."""
    with Pool.open(pool) as opened:
        found = [_record(base) for base in opened.bases()]
    if not as_json:
        found = [
            {**row, "digest": row["digest"][:19], "size": human_bytes(row["size_bytes"])} for row in found
        ]
    columns = ("name", "digest", "size", "n_entries", "created")
    print_rows(found, columns, as_json=as_json, empty="no bases yet: webserv-rt base build shop")


@base_app.command()
def show(name: str, pool: PoolOption, as_json: JsonOption = False) -> None:
    """Show what is known about a base, its site spec included."""
    with Pool.open(pool) as opened:
        base = opened.base(name)
        record = _record(base)
        spec = base.site_path.read_text() if base.site_path else None
    if as_json:
        print_json({**record, "site": spec})
        return
    for key, value in record.items():
        out.print(f"[bold]{key}[/]: {value}", highlight=False)
    if spec is not None:
        out.print("[bold]site.toml[/]:")
        out.print(spec, markup=False, highlight=False)


@base_app.command()
def verify(name: str, pool: PoolOption) -> None:
    """Read a base again, compare it with what was sealed, prove its databases were shut down cleanly."""
    with Pool.open(pool) as opened, progress_bar(f"verifying {name}") as progress:
        proven = verify_base(opened.base(name), progress)
    for line in proven:
        out.print(f"[green]ok[/] {line}")


@base_app.command()
def rm(name: str, pool: PoolOption) -> None:
    """Remove a base."""
    with Host(pool) as host:
        host.remove_base(name)
    out.print(f"base {name} removed")


def _record(base: Base) -> dict[str, Any]:
    return base.record.to_json()


def _tell(base: Base) -> None:
    record = base.record
    out.print(
        f"base {base.name}: {record.n_entries} entries, {human_bytes(record.size_bytes)}, {record.digest}"
    )
