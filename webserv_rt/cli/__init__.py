"""The command `webserv-rt`."""

from __future__ import annotations

import sys

from rich.console import Console

from webserv_rt.cli.app import app
from webserv_rt.errors import WebservError


def main() -> None:
    """Run the command line; what the user can mend is told in one message, without a traceback."""
    # Imported for their commands.
    from webserv_rt.cli import base, bench, demo, doctor, gc, pool, run  # noqa: F401

    try:
        app()
    except (WebservError, OSError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {_escaped(error)}", highlight=False)
        sys.exit(1)


def _escaped(error: BaseException) -> str:
    return str(error).replace("[", r"\[")
