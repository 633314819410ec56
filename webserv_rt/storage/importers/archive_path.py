"""Names in an archive: the only place where they become paths."""

from __future__ import annotations

from webserv_rt.storage.beneath import MAX_PATH_BYTES
from webserv_rt.storage.entry import ROOT
from webserv_rt.storage.errors import ImportRefused, shown


def normalised(name: str, what: str = "the entry") -> str:
    """Return NAME, as an archive gives it, as a path relative to the root: "./etc//passwd" is "etc/passwd".

    Raises `ImportRefused`, calling it WHAT, when the name is empty, absolute, climbs by "..", holds a NUL or
    is longer than any path can be.
    """
    if not name:
        raise ImportRefused(f"{what} has no name")
    if name.startswith("/"):
        raise ImportRefused(f"{what} {shown(name)} has an absolute path; make the archive with relative ones")
    if "\0" in name:
        raise ImportRefused(f"{what} {shown(name)} has a NUL in its name")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ImportRefused(f"{what} {shown(name)} climbs out of its directory by '..'")
    path = "/".join(parts) or ROOT
    if len(path) > MAX_PATH_BYTES:
        raise ImportRefused(f"{what} {shown(name)} is longer than a path can be ({MAX_PATH_BYTES} bytes)")
    return path
