"""File descriptors with an owner."""

from __future__ import annotations

import os
from types import TracebackType
from weakref import WeakSet


class Descriptor:
    """An owned file descriptor: closed once, by `close()`, at the end of a `with` block or with its owner."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """Return the number; raise ValueError once closed."""
        if self._fd < 0:
            raise ValueError("this descriptor is closed")
        return self._fd

    def close(self) -> None:
        """Close the descriptor; closing twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def release(self) -> int:
        """Return the number and own it no longer: it is the caller's to close."""
        fd, self._fd = self.fileno(), -1
        return fd

    def __enter__(self) -> Descriptor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Descriptor({self._fd})"


class Lock(Descriptor):
    """A descriptor to lock (flock) for this process alone.

    A process that is forked from it lets go of its copy: it would keep the lock when this one is killed.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        _locks.add(self)


_locks: WeakSet[Lock] = WeakSet()


def _close_copies() -> None:
    for lock in list(_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_copies)


def open_directory(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> Descriptor:
    """Open a directory (not through a final symlink) for use as a base of other calls."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return Descriptor(os.open(path, flags, dir_fd=dir_fd))
