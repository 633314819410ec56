"""Lay a tree down, entry by entry, below one directory and nowhere else.

Whatever order entries come in and whatever they claim, nothing outside of the root is touched: every parent
is reached without following a symbolic link, and every name is made anew, never opened for writing when it
is there already. Files are written one at a time in large pieces, so that each gets few extents.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from webserv_rt.kernel.remove import remove_tree
from webserv_rt.storage import xattrs
from webserv_rt.storage.beneath import Beneath, join, names_in, split
from webserv_rt.storage.entry import ROOT
from webserv_rt.storage.errors import ImportRefused, shown
from webserv_rt.storage.free_space import FreeSpace

CHUNK_BYTES = 1 << 20

# Reads into the buffer what the source has at the offset, at most the buffer's size; returns the bytes read.
ReadInto = Callable[[int, memoryview], int]

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_Made = TypeVar("_Made")


class Metadata(NamedTuple):
    """What an entry carries besides its content. `mode` is permissions only."""

    mode: int
    uid: int
    gid: int
    mtime_ns: int
    xattrs: dict[str, bytes]


# What a directory gets that a source mentions only as part of a longer path.
IMPLIED = Metadata(0o755, 0, 0, 0, {})


class TreeWriter:
    """Writes entries below ROOT_FD; paths are relative, normalised (`archive_path.normalised`).

    `digests` has the SHA-256 of every file written, by inode number. ROOT_FD stays the caller's; use as a
    context manager.
    """

    def __init__(self, root_fd: int, space: FreeSpace) -> None:
        self.digests: dict[int, str] = {}
        self._beneath = Beneath(root_fd)
        self._space = space
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._zeroes = bytes(CHUNK_BYTES)
        # Applied at the end: times, which every new name in the directory changes, and attributes, since a
        # default ACL would be inherited by what is written later.
        self._directories: dict[str, Metadata] = {ROOT: IMPLIED}
        self._layer: set[str] | None = None

    def __enter__(self) -> TreeWriter:
        os.fchmod(self._beneath.root_fd, IMPLIED.mode)
        return self

    def __exit__(self, *_: object) -> None:
        self._beneath.forget()

    def is_root(self, status: os.stat_result) -> bool:
        """Tell whether STATUS is that of the directory written to."""
        return os.path.samestat(status, os.fstat(self._beneath.root_fd))

    def begin_layer(self) -> None:
        """Start an image layer: from here on, `hide` spares what the layer itself brings."""
        self._layer = {ROOT}

    def directory(self, path: str, metadata: Metadata) -> None:
        """Make the directory PATH, or give the one that is there new metadata."""
        if path != ROOT:
            self._make_directory(path)
        fd = self._beneath.directory(path)
        os.fchown(fd, metadata.uid, metadata.gid)
        os.fchmod(fd, metadata.mode)
        self._directories[path] = metadata

    def file(
        self,
        path: str,
        metadata: Metadata,
        size: int,
        segments: Iterable[tuple[int, int]],
        read_into: ReadInto,
    ) -> None:
        """Write the file PATH of SIZE bytes: SEGMENTS are the (offset, length) that hold data, ascending."""
        segments = list(segments)
        self._space.claim_length(size, shown(path))
        self._space.claim(sum(length for _, length in segments), shown(path))
        fd = self._create(path, _open)
        try:
            self.digests[os.fstat(fd).st_ino] = self._fill(fd, size, segments, read_into)
            os.fchown(fd, metadata.uid, metadata.gid)
            os.fchmod(fd, metadata.mode)
            for name, value in metadata.xattrs.items():
                os.setxattr(fd, name, value)
            os.utime(fd, ns=(metadata.mtime_ns, metadata.mtime_ns))
        finally:
            os.close(fd)

    def symlink(self, path: str, target: str, metadata: Metadata) -> None:
        """Make the symbolic link PATH; TARGET may be anything, as nothing here follows it."""
        self._space.claim(0, shown(path))
        self._create(path, lambda dir_fd, name: os.symlink(target, name, dir_fd=dir_fd))
        self._apply(path, metadata)

    def device(self, path: str, kind: int, major: int, minor: int, metadata: Metadata) -> None:
        """Make the device node PATH; KIND is stat.S_IFCHR or S_IFBLK."""
        if kind == stat.S_IFCHR and (major, minor) == (0, 0):
            raise ImportRefused(
                f"{shown(path)} is the character device 0:0, by which overlayfs hides files: the source is a"
                " layer directory; import the merged tree instead"
            )
        self._space.claim(0, shown(path))
        number = os.makedev(major, minor)
        self._create(path, lambda dir_fd, name: os.mknod(name, kind | 0o600, number, dir_fd=dir_fd))
        self._apply(path, metadata)

    def fifo(self, path: str, metadata: Metadata) -> None:
        """Make the fifo PATH."""
        self._space.claim(0, shown(path))
        self._create(path, lambda dir_fd, name: os.mkfifo(name, 0o600, dir_fd=dir_fd))
        self._apply(path, metadata)

    def hard_link(self, path: str, existing: str) -> None:
        """Make PATH another name of EXISTING, which was written before and is no directory."""
        try:
            existing_fd, existing_name = self._beneath.parent(existing)
            status = os.stat(existing_name, dir_fd=existing_fd, follow_symlinks=False)
        except FileNotFoundError:
            raise ImportRefused(
                f"{shown(path)} is a hard link to {shown(existing)}, which the source does not hold before it"
            ) from None
        except NotADirectoryError:
            raise self._bad_parent(existing) from None
        if stat.S_ISDIR(status.st_mode):
            raise ImportRefused(f"{shown(path)} is a hard link to the directory {shown(existing)}")
        if path == existing:
            return
        source_fd = os.dup(existing_fd)
        try:
            self._create(path, partial(_link, source_fd, existing_name))
        finally:
            os.close(source_fd)

    def hide(self, path: str) -> None:
        """Take PATH away as a whiteout does: what lower layers hold of it, not what this layer brought."""
        try:
            parent_fd, name = self._beneath.parent(path)
            os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise self._bad_parent(path) from None
        self._hide([path])

    def hide_children(self, path: str) -> None:
        """Take away all that lower layers hold in the directory PATH."""
        try:
            names = names_in(self._beneath.directory(path))
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise self._bad_parent(join(path, "*")) from None
        self._hide([join(path, name) for name in names])

    def finish(self) -> None:
        """Give every directory its attributes and times. Nothing may be written afterwards."""
        for path, metadata in self._directories.items():
            fd = self._beneath.directory(path)
            for name, value in metadata.xattrs.items():
                os.setxattr(fd, name, value)
            os.utime(fd, ns=(metadata.mtime_ns, metadata.mtime_ns))

    def _make_directory(self, path: str) -> None:
        """Make the directory PATH unless it is there; a new one gets what an implied one has."""
        self._space.claim(0, shown(path))
        parent_fd, name = self._parent(path)
        try:
            os.mkdir(name, 0o700, dir_fd=parent_fd)
        except FileExistsError:
            if stat.S_ISDIR(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
                return
            os.unlink(name, dir_fd=parent_fd)
            os.mkdir(name, 0o700, dir_fd=parent_fd)
        fd = self._beneath.directory(path)
        os.fchown(fd, IMPLIED.uid, IMPLIED.gid)
        os.fchmod(fd, IMPLIED.mode)
        self._directories[path] = IMPLIED

    def _create(self, path: str, make: Callable[[int, str], _Made]) -> _Made:
        """Call MAKE with the directory and name of PATH; what has the name already is taken away."""
        try:
            return make(*self._parent(path))
        except FileExistsError:
            self._replace(path)
            return make(*self._parent(path))

    def _parent(self, path: str) -> tuple[int, str]:
        """Return the directory of PATH, borrowed, and the name in it; missing parents are made."""
        self._mark(path)
        try:
            return self._beneath.parent(path)
        except FileNotFoundError:
            self._make_directory(split(path)[0])
            return self._beneath.parent(path)
        except NotADirectoryError:
            raise self._bad_parent(path) from None

    def _mark(self, path: str) -> None:
        """Note that the present layer brought PATH, and so its parents."""
        while self._layer is not None and path not in self._layer:
            self._layer.add(path)
            path, _ = split(path)

    def _replace(self, path: str) -> None:
        """Remove what is at PATH. A directory with content goes only for a later layer, as tar has it too."""
        parent_fd, name = self._beneath.parent(path)
        try:
            os.unlink(name, dir_fd=parent_fd)
        except IsADirectoryError:
            if self._layer is None and names_in(self._beneath.directory(path)):
                raise ImportRefused(
                    f"{shown(path)} comes again, in place of a directory with content"
                ) from None
            self._remove(path)

    def _hide(self, paths: list[str]) -> None:
        while paths:
            path = paths.pop()
            if self._layer is None or path not in self._layer:
                self._remove(path)
                continue
            with suppress(NotADirectoryError):
                paths += [join(path, name) for name in names_in(self._beneath.directory(path))]

    def _remove(self, path: str) -> None:
        remove_tree(*self._beneath.parent(path))
        self._beneath.forget()
        if path in self._directories:
            below = path + "/"
            gone = [name for name in self._directories if name == path or name.startswith(below)]
            for name in gone:
                del self._directories[name]

    def _bad_parent(self, path: str) -> ImportRefused:
        """Return the refusal of PATH, one of whose parents is no directory."""
        parent = ROOT
        for name in path.split("/")[:-1]:
            parent_fd = self._beneath.directory(parent)
            parent = join(parent, name)
            mode = os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                return ImportRefused(f"{shown(path)} leads through the symbolic link {shown(parent)}")
            if not stat.S_ISDIR(mode):
                break
        return ImportRefused(f"{shown(path)} lies below {shown(parent)}, which is no directory")

    def _apply(self, path: str, metadata: Metadata) -> None:
        """Give METADATA to PATH, which was just made and is neither file nor directory."""
        dir_fd, name = self._beneath.parent(path)
        os.chown(name, metadata.uid, metadata.gid, dir_fd=dir_fd, follow_symlinks=False)
        if not stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            os.chmod(name, metadata.mode, dir_fd=dir_fd)
        xattrs.write(dir_fd, name, metadata.xattrs)
        times = (metadata.mtime_ns, metadata.mtime_ns)
        os.utime(name, ns=times, dir_fd=dir_fd, follow_symlinks=False)

    def _fill(self, fd: int, size: int, segments: list[tuple[int, int]], read_into: ReadInto) -> str:
        """Write SEGMENTS to FD, leaving holes between them; return the SHA-256 of the whole."""
        digest = hashlib.sha256()
        position = 0
        for offset, length in segments:
            self._hash_hole(digest, offset - position)
            position = offset
            while position < offset + length:
                n_read = read_into(position, self._buffer[: offset + length - position])
                piece = self._buffer[:n_read]
                digest.update(piece)
                while piece:
                    n_written = os.pwrite(fd, piece, position)
                    position += n_written
                    piece = piece[n_written:]
        if position < size:
            self._hash_hole(digest, size - position)
            os.ftruncate(fd, size)
        return digest.hexdigest()

    def _hash_hole(self, digest: hashlib._Hash, n_bytes: int) -> None:
        while n_bytes > 0:
            digest.update(self._zeroes[: min(n_bytes, CHUNK_BYTES)])
            n_bytes -= CHUNK_BYTES


def _link(source_fd: int, source_name: str, dir_fd: int, name: str) -> None:
    os.link(source_name, name, src_dir_fd=source_fd, dst_dir_fd=dir_fd, follow_symlinks=False)


def _open(dir_fd: int, name: str) -> int:
    return os.open(name, _CREATE, 0o600, dir_fd=dir_fd)
