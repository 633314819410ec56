"""Import a directory: the root filesystem that a tool such as mmdebstrap made, or a mounted one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from webserv_rt.storage import xattrs
from webserv_rt.storage.errors import ImportRefused, SourceUnavailable, refused_by_system, shown
from webserv_rt.storage.progress import Progress, ProgressCallback
from webserv_rt.storage.scan import open_file
from webserv_rt.storage.tree_writer import Metadata, TreeWriter
from webserv_rt.storage.walk import Found, walk


def import_directory(source: Path, writer: TreeWriter, progress: ProgressCallback | None) -> None:
    """Copy the tree SOURCE through WRITER, holes kept, sockets left out.

    The tree must be on one filesystem and must not change meanwhile. Raises `ImportRefused`,
    `TreeUnreadable` and `PoolFull`.
    """
    try:
        source_fd = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SourceUnavailable(f"cannot read the directory {source}: {error.strerror}") from error
    try:
        # Finding the total takes a tenth of the copy's time; it is for the bar alone.
        total = _n_bytes(source_fd) if progress is not None else None
        copy = _Copy(writer, Progress(progress, total))
        for found in walk(source_fd, one_filesystem=True):
            try:
                copy.entry(found)
            except OSError as error:
                raise refused_by_system("import", found.path, error) from error
        copy.progress.finish()
    finally:
        os.close(source_fd)


class _Copy:
    """One copy under way, with the first path of each inode that has several."""

    def __init__(self, writer: TreeWriter, progress: Progress) -> None:
        self.progress = progress
        self._writer = writer
        self._first_links: dict[tuple[int, int], str] = {}

    def entry(self, found: Found) -> None:
        """Copy what was FOUND."""
        status = found.status
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFSOCK:
            return
        if status.st_nlink > 1 and kind != stat.S_IFDIR:
            first = self._first_links.setdefault((status.st_dev, status.st_ino), found.path)
            if first != found.path:
                self._writer.hard_link(found.path, first)
                return
        metadata = _metadata(found)
        if kind == stat.S_IFREG:
            self._file(found, metadata)
        elif kind == stat.S_IFDIR:
            self._directory(found, metadata)
        elif kind == stat.S_IFLNK:
            self._writer.symlink(found.path, os.readlink(found.name, dir_fd=found.dir_fd), metadata)
        elif kind == stat.S_IFIFO:
            self._writer.fifo(found.path, metadata)
        else:
            device = status.st_rdev
            self._writer.device(found.path, kind, os.major(device), os.minor(device), metadata)

    def _directory(self, found: Found, metadata: Metadata) -> None:
        if self._writer.is_root(found.status):
            raise ImportRefused(f"the source holds the pool, at {shown(found.path)}; import a part of it")
        self._writer.directory(found.path, metadata)

    def _file(self, found: Found, metadata: Metadata) -> None:
        fd = open_file(found)
        try:
            size = os.fstat(fd).st_size

            def read_into(offset: int, buffer: memoryview) -> int:
                n_bytes = os.preadv(fd, [buffer], offset)
                if n_bytes == 0:
                    raise ImportRefused(f"{shown(found.path)} became shorter while it was being read")
                self.progress.advance(n_bytes)
                return n_bytes

            segments = _data(fd, size) if found.status.st_blocks * 512 < size else [(0, size)]
            self._writer.file(found.path, metadata, size, segments, read_into)
        finally:
            os.close(fd)


def _n_bytes(source_fd: int) -> int:
    statuses = (found.status for found in walk(source_fd, one_filesystem=True))
    return sum(status.st_size for status in statuses if stat.S_ISREG(status.st_mode))


def _metadata(found: Found) -> Metadata:
    status = found.status
    attributes = xattrs.read(found.dir_fd, found.name)
    xattrs.refuse_overlay(found.path, attributes)
    return Metadata(
        stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns, attributes
    )


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the (offset, length) of every part of FD that is no hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        yield start, end - start
