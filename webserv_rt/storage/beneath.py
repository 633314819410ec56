"""Directories below a root, reached without ever following a symbolic link."""

from __future__ import annotations

import os
from types import TracebackType

from webserv_rt.storage.entry import ROOT

# PATH_MAX: what is longer can be made by hand, step by step, but no process could ever name it.
MAX_PATH_BYTES = 4096

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Beneath:
    """Opens directories below ROOT_FD, one component at a time with O_NOFOLLOW.

    Holds one descriptor, of the directory asked for last, since entries mostly come directory by
    directory. ROOT_FD stays the caller's. Use as a context manager.
    """

    def __init__(self, root_fd: int) -> None:
        self.root_fd = root_fd
        self._path = ROOT
        self._fd = -1

    def __enter__(self) -> Beneath:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop the held descriptor; needed whenever a directory was removed or moved."""
        if self._fd >= 0:
            os.close(self._fd)
        self._path, self._fd = ROOT, -1

    def directory(self, path: str) -> int:
        """Return a descriptor of the directory PATH, borrowed until the next call.

        Raises FileNotFoundError, or NotADirectoryError when a component is a symbolic link or a file.
        """
        if path == ROOT:
            return self.root_fd
        if path == self._path:
            return self._fd
        if self._fd >= 0 and path.startswith(self._path + "/"):
            start_fd, rest = self._fd, path[len(self._path) + 1 :]
        else:
            start_fd, rest = self.root_fd, path
        fd = _descend(start_fd, rest)
        self.forget()
        self._path, self._fd = path, fd
        return fd

    def parent(self, path: str) -> tuple[int, str]:
        """Return the directory that holds PATH, borrowed until the next call, and the name in it."""
        parent, name = split(path)
        return self.directory(parent), name


def names_in(directory_fd: int) -> list[str]:
    """Return the names in the directory of DIRECTORY_FD, sorted."""
    return sorted(os.listdir(directory_fd))


def split(path: str) -> tuple[str, str]:
    """Return the parent of PATH, relative to the root, and its name."""
    parent, _, name = path.rpartition("/")
    return parent or ROOT, name


def join(directory: str, name: str) -> str:
    """Return the path, relative to the root, of NAME in DIRECTORY."""
    return name if directory == ROOT else f"{directory}/{name}"


def _descend(start_fd: int, path: str) -> int:
    fd = start_fd
    try:
        for name in path.split("/"):
            below_fd = os.open(name, _FLAGS, dir_fd=fd)
            if fd != start_fd:
                os.close(fd)
            fd = below_fd
    except BaseException:
        if fd != start_fd:
            os.close(fd)
        raise
    return fd
