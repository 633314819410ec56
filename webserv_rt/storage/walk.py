"""Walk a tree in a fixed order, without following symbolic links and with two descriptors open at most."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from typing import NamedTuple

from webserv_rt.storage.beneath import MAX_PATH_BYTES, Beneath, join, names_in
from webserv_rt.storage.entry import ROOT
from webserv_rt.storage.errors import TreeUnreadable, shown


class Found(NamedTuple):
    """A name met on a walk: `name` in the directory `dir_fd`, which is valid until the next step.

    For a directory `dir_fd` is the directory itself and `name` is ".".
    """

    path: str
    dir_fd: int
    name: str
    status: os.stat_result


def walk(
    root_fd: int, *, exclude: Collection[str] = (), one_filesystem: bool = False, skip_too_deep: bool = False
) -> Iterator[Found]:
    """Yield everything below ROOT_FD, the root first, except the subtrees EXCLUDE.

    Of each directory: itself, then its names that are no directories, sorted, then its subdirectories,
    sorted, each with all that is in it. Raises `TreeUnreadable` when something vanishes meanwhile, a path
    is longer than PATH_MAX (with SKIP_TOO_DEEP it is left out) or, with ONE_FILESYSTEM, something else is
    mounted in the tree.
    """
    excluded = {path.strip("/") for path in exclude}
    device = os.fstat(root_fd).st_dev
    todo = [ROOT]
    with Beneath(root_fd) as beneath:
        while todo:
            path = todo.pop()
            if len(os.fsencode(path)) > MAX_PATH_BYTES:
                if skip_too_deep:
                    continue
                raise TreeUnreadable(f"the path {shown(path)} is longer than {MAX_PATH_BYTES} bytes")
            try:
                fd = beneath.directory(path)
                status = os.fstat(fd)
                if one_filesystem and status.st_dev != device:
                    raise TreeUnreadable(
                        f"another filesystem is mounted on {shown(path)} in the tree; unmount it first"
                    )
                yield Found(path, fd, ".", status)
                subdirectories = []
                for name in names_in(fd):
                    below = join(path, name)
                    if below in excluded:
                        continue
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        subdirectories.append(below)
                    else:
                        yield Found(below, fd, name, status)
            except OSError as error:
                reason = f"{error.strerror} (did it change meanwhile?)"
                raise TreeUnreadable(f"read {shown(path)}: {reason}") from error
            todo.extend(reversed(subdirectories))
