"""Prove from its files alone that a database was shut down cleanly.

An instance that starts from an unclean one recovers first, at every reset: slow, and not the state that
was meant. A database that is still running is as unclean as one that was killed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from webserv_rt.errors import WebservError
from webserv_rt.storage.crc32c import crc32c
from webserv_rt.storage.redo_log import RedoLog, UnreadableRedoLog

_OPEN_COUNT_OFFSET: Final = 24  # in the index file of an Aria or MyISAM table, two bytes
_PG_STATE_OFFSET: Final = 16
_PG_STATES: Final = (
    "starting up",
    "shut down",
    "shut down in recovery",
    "shutting down",
    "in crash recovery",
    "in archive recovery",
    "in production",
)
_PG_SHUT_DOWN: Final = 1


class UncleanDatabase(WebservError):
    """A database was not shut down cleanly, or that cannot be told. `path` is its directory."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the database in {path} is unclean: {reason}; stop its server with SIGTERM and wait"
        )
        self.path = path
        self.reason = reason


def prove_mariadb_clean(datadir: Path) -> None:
    """Raise `UncleanDatabase` unless InnoDB's redo log is empty and every Aria and MyISAM table was closed.

    For MariaDB 10.8 and later with the redo log in DATADIR and not encrypted.
    """
    try:
        _prove_innodb_clean(datadir)
        for path in sorted([*datadir.rglob("*.MAI"), *datadir.rglob("*.MYI")]):
            with path.open("rb") as index:
                header = index.read(_OPEN_COUNT_OFFSET + 2)
            if int.from_bytes(header[_OPEN_COUNT_OFFSET:], "big") != 0:
                table = path.relative_to(datadir).with_suffix("")
                raise UncleanDatabase(datadir, f"the table {table} was not closed")
    except OSError as error:
        raise UncleanDatabase(datadir, str(error)) from error


def prove_postgresql_clean(datadir: Path) -> None:
    """Raise `UncleanDatabase` unless the control file says "shut down" and no server has DATADIR."""
    if (datadir / "postmaster.pid").exists():
        raise UncleanDatabase(datadir, "postmaster.pid is there: its server runs or was killed")
    try:
        control = (datadir / "global" / "pg_control").read_bytes()
    except OSError as error:
        raise UncleanDatabase(datadir, str(error)) from error
    if not _pg_checksum_is_right(control):
        raise UncleanDatabase(datadir, "the checksum of global/pg_control is wrong")
    state = int.from_bytes(control[_PG_STATE_OFFSET : _PG_STATE_OFFSET + 4], "little")
    if state != _PG_SHUT_DOWN:
        name = _PG_STATES[state] if state < len(_PG_STATES) else f"{state}, which is unknown"
        raise UncleanDatabase(datadir, f'the state in global/pg_control is "{name}"')


def _prove_innodb_clean(datadir: Path) -> None:
    # InnoDB deletes its temporary tablespace at a clean shutdown.
    if (datadir / "ibtmp1").exists():
        raise UncleanDatabase(datadir, "ibtmp1 is there: its server runs or was killed")
    try:
        log = RedoLog(datadir / "ib_logfile0")
    except UnreadableRedoLog as error:
        raise UncleanDatabase(datadir, f"ib_logfile0 cannot be judged: {error}") from error
    if not log.is_clean():
        raise UncleanDatabase(datadir, f"ib_logfile0 holds changes after checkpoint LSN {log.checkpoint.lsn}")


def _pg_checksum_is_right(control: bytes) -> bool:
    """Look for the checksum: it ends the structure, whose length differs between PostgreSQL's versions."""
    return any(
        int.from_bytes(control[length : length + 4], "little") == crc32c(control[:length])
        for length in range(_PG_STATE_OFFSET + 4, min(len(control), 512) - 3, 4)
    )
