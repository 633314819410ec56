"""The files that make an image: in a directory, or in a tar archive read in place."""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import re
import stat
from pathlib import Path
from typing import Any, Protocol

from webserv_rt.storage.beneath import Beneath
from webserv_rt.storage.errors import ImportRefused, SourceDamaged, SourceUnavailable, shown
from webserv_rt.storage.importers.archive_path import normalised
from webserv_rt.storage.importers.tar_reader import TarReader

_MAX_JSON_BYTES = 16 << 20
_DIGEST = re.compile(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})")


class Blobs(Protocol):
    """Named, immutable files."""

    def open(self, name: str) -> io.RawIOBase:
        """Return the file NAME, to be closed by the caller. Raises `SourceDamaged` when it is missing."""

    def size(self, name: str) -> int | None:
        """Return the bytes in NAME, None when it is missing."""


class DirectoryBlobs:
    """The files below DIRECTORY. Use as a context manager."""

    def __init__(self, directory: Path) -> None:
        try:
            self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SourceUnavailable(f"cannot read the directory {directory}: {error.strerror}") from error
        self._beneath = Beneath(self._fd)

    def __enter__(self) -> DirectoryBlobs:
        return self

    def __exit__(self, *_: object) -> None:
        self._beneath.forget()
        os.close(self._fd)

    def open(self, name: str) -> io.RawIOBase:
        try:
            dir_fd, file_name = self._beneath.parent(name)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return io.FileIO(os.open(file_name, flags, dir_fd=dir_fd), "rb")
        except OSError as error:
            raise SourceDamaged(f"the image's file {shown(name)} cannot be read: {error.strerror}") from error

    def size(self, name: str) -> int | None:
        try:
            dir_fd, file_name = self._beneath.parent(name)
            status = os.stat(file_name, dir_fd=dir_fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None


class ArchiveBlobs:
    """The members of the uncompressed tar archive FILE_FD, which stays the caller's and must be seekable."""

    def __init__(self, file_fd: int) -> None:
        self._fd = file_fd
        self._members: dict[str, tuple[int, int]] = {}
        self._aliases: dict[str, str] = {}
        os.lseek(file_fd, 0, os.SEEK_SET)
        with io.FileIO(file_fd, "rb", closefd=False) as raw, io.BufferedReader(raw) as stream:
            reader = TarReader(stream)
            for entry in reader:
                name = normalised(entry.name)
                if entry.kind == "file":
                    self._members[name] = (reader.position, entry.size)
                elif entry.kind == "symlink":  # docker save names a layer that comes twice like this
                    self._aliases[name] = posixpath.normpath(posixpath.join(name, "..", entry.link_name))
                elif entry.kind == "hard link":
                    self._aliases[name] = normalised(entry.link_name)
            if not reader.complete:
                raise SourceDamaged("the image archive is cut off: its end marker is missing")

    def open(self, name: str) -> io.RawIOBase:
        name = self._aliases.get(name, name)
        if name not in self._members:
            raise SourceDamaged(f"the image archive lacks the file {shown(name)} that it refers to")
        return _Slice(self._fd, *self._members[name])

    def size(self, name: str) -> int | None:
        member = self._members.get(self._aliases.get(name, name))
        return member[1] if member else None


class _Slice(io.RawIOBase):
    """N_BYTES of FD from OFFSET on."""

    def __init__(self, fd: int, offset: int, n_bytes: int) -> None:
        self._fd = fd
        self._offset = offset
        self._end = offset + n_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")[: self._end - self._offset]
        n_read = os.preadv(self._fd, [view], self._offset)
        self._offset += n_read
        return n_read


def checked_digest(digest: object) -> str:
    """Return DIGEST if it is "sha256:HEX" or "sha512:HEX". Raises `SourceDamaged`."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise SourceDamaged(f"the image has {shown(str(digest))} where a sha256 or sha512 digest belongs")
    return digest


def blob_name(digest: object) -> str:
    """Return the name that the file of DIGEST has in an OCI layout."""
    return "blobs/" + checked_digest(digest).replace(":", "/")


class Verifier:
    """Hashes what passes and compares: DIGEST is of WHAT."""

    def __init__(self, digest: str, what: str) -> None:
        algorithm, self._expected = checked_digest(digest).split(":")
        self._hash = hashlib.new(algorithm)
        self._what = what

    def update(self, piece: bytes | memoryview) -> None:
        """Add PIECE."""
        self._hash.update(piece)

    def check(self) -> None:
        """Raise `SourceDamaged` when what passed is not what the digest says."""
        if self._hash.hexdigest() != self._expected:
            raise SourceDamaged(
                f"{self._what} does not match its digest: it should be {self._hash.name}:{self._expected},"
                f" is {self._hash.name}:{self._hash.hexdigest()}; get the image again"
            )


def read_json(blobs: Blobs, name: str, digest: str | None = None) -> Any:
    """Return the JSON in the file NAME of BLOBS, which must have DIGEST. Raises `SourceDamaged`."""
    with io.BufferedReader(blobs.open(name)) as file:
        data = file.read(_MAX_JSON_BYTES + 1)
    if len(data) > _MAX_JSON_BYTES:
        raise ImportRefused(f"the image's file {shown(name)} is too large to be a description")
    if digest is not None:
        verifier = Verifier(digest, f"the image's file {shown(name)}")
        verifier.update(data)
        verifier.check()
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SourceDamaged(f"the image's file {shown(name)} is no JSON: {error}") from error
