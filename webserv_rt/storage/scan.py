"""Read a tree into entries, hashing its files on several threads."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from webserv_rt.storage import xattrs
from webserv_rt.storage.entry import Entry, Kind
from webserv_rt.storage.errors import TreeUnreadable, shown
from webserv_rt.storage.walk import Found, walk

_KINDS: dict[int, Kind] = {
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "file",
    stat.S_IFLNK: "symlink",
    stat.S_IFCHR: "character",
    stat.S_IFBLK: "block",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}

_CHUNK_BYTES = 1 << 20
# Below this a hand-over to another thread costs more than the hash.
_INLINE_BYTES = 128 << 10
_MAX_AHEAD = 64

# NONBLOCK: should a fifo take the file's place meanwhile, opening it must not wait for a writer.
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_Pending = tuple[Entry, "Future[str] | None"]


def scan_tree(
    root: int | str | Path,
    *,
    exclude: Collection[str] = (),
    digests: Mapping[int, str] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Entry]:
    """Yield every entry of the tree ROOT (a directory or a descriptor of one, which stays the caller's).

    The order is `walk`'s. EXCLUDE are paths whose subtrees are left out. DIGESTS are the SHA-256 of files
    known already, by inode number; all other files are read, without touching their access times, and
    ON_BYTES is called with the size of each as its turn comes. Raises `TreeUnreadable`.
    """
    with _root_fd(root) as root_fd, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        scan = _Scan(pool, digests or {})
        ahead: deque[_Pending] = deque()
        try:
            for found in walk(root_fd, exclude=exclude):
                ahead.append(scan.read(found))
                while ahead and (len(ahead) > _MAX_AHEAD or ahead[0][1] is None):
                    yield _finished(ahead.popleft(), on_bytes)
            while ahead:
                yield _finished(ahead.popleft(), on_bytes)
        finally:
            scan.abandon()


class _Scan:
    """What one scan remembers: the first path of each inode with several links, and the digests."""

    def __init__(self, pool: ThreadPoolExecutor, digests: Mapping[int, str]) -> None:
        self._pool = pool
        self._digests = digests
        self._abandoned = False
        self._first_links: dict[tuple[int, int], tuple[str, Future[str] | str]] = {}

    def abandon(self) -> None:
        """Let the hashes still to be made end at once, closing their descriptors."""
        self._abandoned = True

    def read(self, found: Found) -> _Pending:
        """Return the entry that was FOUND; with a future when its digest is still being made."""
        try:
            return self._read(found)
        except OSError as error:
            raise TreeUnreadable(f"read {shown(found.path)}: {os.strerror(error.errno or 0)}") from error

    def _read(self, found: Found) -> _Pending:
        status = found.status
        kind = _KINDS[stat.S_IFMT(status.st_mode)]
        device = ""
        if kind in ("character", "block"):
            device = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        inode = (status.st_dev, status.st_ino)
        first, digest = self._first_links.get(inode, ("", None))
        if kind == "file" and digest is None:
            digest = self._digest(found)
        if status.st_nlink > 1 and kind != "directory" and not first:
            self._first_links[inode] = (found.path, digest or "")
        attributes = xattrs.read(found.dir_fd, found.name)
        entry = Entry(
            path=found.path,
            kind=kind,
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            mtime_s=status.st_mtime_ns // 1_000_000_000,
            size=status.st_size if kind == "file" else 0,
            sha256=digest if isinstance(digest, str) else "",
            target=os.readlink(found.name, dir_fd=found.dir_fd) if kind == "symlink" else "",
            hard_link=first,
            device=device,
            xattrs=tuple((name, value.hex()) for name, value in attributes.items()),
        )
        return entry, digest if isinstance(digest, Future) else None

    def _digest(self, found: Found) -> Future[str] | str:
        known = self._digests.get(found.status.st_ino)
        if known is not None:
            return known
        fd = open_file(found)
        if found.status.st_size <= _INLINE_BYTES:
            return self._hash_and_close(fd)
        return self._pool.submit(self._hash_and_close, fd)

    def _hash_and_close(self, fd: int) -> str:
        try:
            digest = hashlib.sha256()
            while not self._abandoned and (chunk := os.read(fd, _CHUNK_BYTES)):
                digest.update(chunk)
            return digest.hexdigest()
        finally:
            os.close(fd)


def open_file(found: Found) -> int:
    """Return a descriptor to read the regular file FOUND, its access time left alone where that is allowed.

    Raises `TreeUnreadable` when it is no regular file any more.
    """
    try:
        fd = os.open(found.name, READ_FLAGS | os.O_NOATIME, dir_fd=found.dir_fd)
    except PermissionError:  # only the owner and root may ask for O_NOATIME
        fd = os.open(found.name, READ_FLAGS, dir_fd=found.dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise TreeUnreadable(f"{shown(found.path)} changed while it was being read")
    return fd


def _finished(pending: _Pending, on_bytes: Callable[[int], None] | None) -> Entry:
    entry, future = pending
    if on_bytes is not None:
        on_bytes(entry.size)
    if future is None:
        return entry
    try:
        return entry._replace(sha256=future.result())
    except OSError as error:
        raise TreeUnreadable(f"read {shown(entry.path)}: {os.strerror(error.errno or 0)}") from error


@contextmanager
def _root_fd(root: int | str | Path) -> Iterator[int]:
    if isinstance(root, int):
        yield root
        return
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise TreeUnreadable(f"read {root}: {os.strerror(error.errno or 0)}") from error
    try:
        yield fd
    finally:
        os.close(fd)
