"""webserv-rt doctor"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import typer
from rich.table import Table

from webserv_rt.cli.app import JsonOption, PoolOption, app, out, print_json
from webserv_rt.doctor import examine

_COLOURS: Final = {"ok": "green", "degraded": "yellow", "missing": "red"}


@app.command()
def doctor(pool: PoolOption, as_json: JsonOption = False) -> None:
    """Try what this kernel and user can do; say what to do about what is missing."""
    checks = examine(pool)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        table = Table("check", "", "found", "what to do", header_style="bold")
        for check in checks:
            table.add_row(check.name, f"[{_COLOURS[check.status]}]{check.status}", check.detail, check.advice)
        out.print(table)
    if any(check.status == "missing" for check in checks):
        raise typer.Exit(1)
