"""Make something whole out of sight, then put it in place by one rename.

What a maker that was killed leaves in the staging directory is removed with it: the directory belongs to one
owner (`Pool.dead_owners`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webserv_rt.kernel.remove import remove_tree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class Stage:
    """A directory that only its maker knows, until it is published or removed."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.is_published = False

    def publish(self, destination: Path) -> None:
        """Sync all that was written, then move the stage to DESTINATION, which must not exist.

        After this a power cut cannot take it away or leave part of it. Raises OSError.
        """
        _sync_filesystem(self.fd)
        if os.path.lexists(destination):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(destination))
        self.path.rename(destination)
        self.is_published = True
        with _opened(destination.parent) as fd:
            os.fsync(fd)


@contextmanager
def staged(staging: Path) -> Iterator[Stage]:
    """Give a new stage in STAGING; at the end it is removed unless it was published. Raises OSError."""
    with _opened(staging) as staging_fd:
        name = f"stage-{secrets.token_hex(6)}"
        os.mkdir(name, 0o700, dir_fd=staging_fd)
        stage = None
        try:
            with _opened(staging / name) as fd:
                stage = Stage(staging / name, fd)
                yield stage
        finally:
            if stage is None or not stage.is_published:
                remove_tree(staging_fd, name)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync_filesystem(fd: int) -> None:
    """Write all of the filesystem of FD to its disk. Raises OSError, also for writes that failed earlier."""
    # Python has os.sync() only, which waits for every filesystem of the host.
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
