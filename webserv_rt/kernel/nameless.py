"""Files without a name, which get one when they are complete, or vanish with their descriptor."""

from __future__ import annotations

import os
from pathlib import Path

from .descriptor import open_directory


def open_nameless(directory: Path) -> int:
    """Open a new file on the filesystem of DIRECTORY, mode 0600; EOPNOTSUPP where there are no such files."""
    return os.open(directory, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)


def link_nameless(fd: int, path: Path) -> None:
    """Give the nameless file FD the name PATH; FileExistsError when that is taken."""
    # Only with a directory's descriptor does Python's link() follow the magic link.
    with open_directory(path.parent) as parent:
        os.link(f"/proc/self/fd/{fd}", path.name, dst_dir_fd=parent.fileno(), follow_symlinks=True)
