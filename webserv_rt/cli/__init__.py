"""The command `webserv-rt`."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

from webserv_rt.cli.app import app
from webserv_rt.errors import WebservError


def main() -> None:
    """Run the command line; what the user can mend is told in one message, without a traceback."""
    # Imported for their commands.
    from webserv_rt.cli import base, bench, demo, doctor, gc, pool, run  # noqa: F401

    try:
        app()
    except (WebservError, OSError) as error:
        # Not wrapped: commands and paths in it are there to be copied.
        message = f"[bold red]error:[/] {escape(str(error))}"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(1)
