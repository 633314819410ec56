"""What can go wrong with bases; each text says what is wrong and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from webserv_rt.errors import WebservError
from webserv_rt.storage.difference import Difference

_N_SHOWN = 20


class ImportRefused(WebservError):
    """A source holds something that a base must not hold; nothing of it was kept."""


class SourceDamaged(ImportRefused):
    """A source is cut off, corrupt, or does not match its own digests."""


class SourceUnavailable(ImportRefused):
    """A source is not there or cannot be reached."""


class BadBaseName(WebservError):
    """A name cannot be the name of a base."""


class BaseExists(WebservError):
    """There is a base of that name already."""


class BaseNotFound(WebservError):
    """There is no base of that name."""


class BaseInUse(WebservError):
    """A base cannot be removed because something runs from it."""


class TreeUnreadable(WebservError):
    """A tree could not be read to its end: it changed meanwhile, or goes too deep."""


class PoolFull(WebservError):
    """The pool has no room for what was to be written. `needed` and `free` are bytes, None when not known."""

    def __init__(self, needed: int | None, free: int | None, what: str) -> None:
        reason = f"{what} does not fit"
        if needed is not None and free is not None:
            reason = f"{what} needs {shown_bytes(needed)}, {shown_bytes(max(free, 0))} are free"
        super().__init__(
            f"the pool is full: {reason};"
            " remove bases or instances (webserv-rt base rm, webserv-rt gc) or grow it (webserv-rt pool grow)"
        )
        self.needed = needed
        self.free = free


class BaseDamaged(WebservError):
    """A base is not what was sealed. `differences` lists every one found."""

    def __init__(self, name: str, reason: str, differences: Sequence[Difference] = ()) -> None:
        lines = [f"base {name} is damaged: {reason}; remove it and import it again"]
        lines += [f"  {difference}" for difference in differences[:_N_SHOWN]]
        if len(differences) > _N_SHOWN:
            lines.append(f"  ... and {len(differences) - _N_SHOWN} more")
        super().__init__("\n".join(lines))
        self.differences = tuple(differences)


def shown(path: str) -> str:
    """Return PATH quoted for a message, so that control characters and bad UTF-8 cannot garble it."""
    return ascii(path) if len(path) <= 200 else ascii(path[:200]) + "..."


def shown_bytes(n_bytes: int) -> str:
    """Return N_BYTES with a unit that keeps it readable."""
    if n_bytes < 1 << 20:
        return f"{n_bytes} bytes"
    if n_bytes < 1 << 30:
        return f"{n_bytes / (1 << 20):.1f} MiB"
    return f"{n_bytes / (1 << 30):.1f} GiB"


def refused_by_system(step: str, path: str, error: OSError) -> WebservError:
    """Return what to raise for the kernel's ERROR in STEP ("create", "read") on the entry PATH."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PoolFull(None, None, shown(path))
    hint = "; run as root" if error.errno in (errno.EPERM, errno.EACCES) and os.geteuid() != 0 else ""
    return ImportRefused(f"{step} {shown(path)}: {os.strerror(error.errno or 0)}{hint}")
