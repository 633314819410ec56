"""What a source is, from how it is named and what it begins with."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

from webserv_rt.storage.entry import ROOT
from webserv_rt.storage.errors import ImportRefused, SourceUnavailable
from webserv_rt.storage.free_space import FreeSpace
from webserv_rt.storage.image_config import ImageConfig
from webserv_rt.storage.importers.archive import import_archive
from webserv_rt.storage.importers.archive_path import normalised
from webserv_rt.storage.importers.blobs import ArchiveBlobs, Blobs, DirectoryBlobs
from webserv_rt.storage.importers.directory import import_directory
from webserv_rt.storage.importers.image import write_image
from webserv_rt.storage.importers.oci import OCI_LAYOUT, find_image
from webserv_rt.storage.importers.podman import image_archive
from webserv_rt.storage.importers.spool import spooled
from webserv_rt.storage.importers.streams import BUFFER_BYTES, Metered, decompressed
from webserv_rt.storage.importers.tar_reader import TarReader
from webserv_rt.storage.progress import Progress, ProgressCallback
from webserv_rt.storage.tree_writer import TreeWriter

_PODMAN = "podman:"
_OCI = "oci:"
_STDIN = "-"

# What archives of images consist of, whoever wrote them; a root filesystem has none of it at its top.
_IMAGE_MEMBER = re.compile(
    r"manifest\.json|repositories|oci-layout|index\.json|blobs(/.*)?|[0-9a-f]{64}(\.json|\.tar|/.*)?"
)
_HEAD_BYTES = 64 << 10


class SourceWriter:
    """Writes one source through WRITER; an image archive that must be kept meanwhile goes to SCRATCH."""

    def __init__(
        self, writer: TreeWriter, scratch: Path, space: FreeSpace, callback: ProgressCallback | None
    ) -> None:
        self._writer = writer
        self._scratch = scratch
        self._space = space
        self._callback = callback

    def write(self, source: str | IO[bytes]) -> ImageConfig | None:
        """Write SOURCE; return its configuration if it is an image.

        SOURCE is "podman:NAME:TAG", "oci:PATH[:NAME]" (a layout or an archive), "-" for standard input, the
        path of a directory (a root filesystem or an OCI layout) or of an archive (a root filesystem's or an
        image's), or a file object of an archive.
        """
        if not isinstance(source, str):
            return self._archive(source, None)
        if source == _STDIN:
            return self._archive(sys.stdin.buffer, None)
        if source.startswith(_PODMAN):
            archive = image_archive(source.removeprefix(_PODMAN))
            with spooled(archive, self._scratch, self._space, self._callback) as fd:
                return self._image(ArchiveBlobs(fd), None)
        if source.startswith(_OCI):
            path, reference = _path_and_reference(source.removeprefix(_OCI))
            return self._path(path, reference, must_be_image=True)
        return self._path(Path(source), None, must_be_image=False)

    def _path(self, path: Path, reference: str | None, must_be_image: bool) -> ImageConfig | None:
        if not path.is_dir():
            try:
                with path.open("rb") as file:
                    return self._archive(file, reference, must_be_image)
            except FileNotFoundError as error:
                raise SourceUnavailable(f"there is nothing at {path}") from error
            except PermissionError as error:
                raise SourceUnavailable(f"{path} may not be read") from error
        if must_be_image or (path / OCI_LAYOUT).is_file():
            with DirectoryBlobs(path) as blobs:
                return self._image(blobs, reference)
        import_directory(path, self._writer, self._callback)
        return None

    def _archive(
        self, file: IO[bytes], reference: str | None, must_be_image: bool = False
    ) -> ImageConfig | None:
        total = _size(file)
        progress = Progress(self._callback, total)
        stream = decompressed(Metered(file, lambda piece: progress.advance(len(piece))))
        if not _begins_as_image(stream.peek(_HEAD_BYTES)):
            if must_be_image:
                raise ImportRefused("this is no archive of an image")
            import_archive(stream, self._writer)
            progress.finish()
            return None
        if total is not None and _is_plain_tar(file.fileno()):
            return self._image(ArchiveBlobs(file.fileno()), reference)
        pieces = iter(lambda: stream.read(BUFFER_BYTES), b"")
        with spooled(pieces, self._scratch, self._space, self._callback) as fd:
            return self._image(ArchiveBlobs(fd), reference)

    def _image(self, blobs: Blobs, reference: str | None) -> ImageConfig:
        image = find_image(blobs, reference)
        write_image(image, blobs, self._writer, self._callback)
        return image.config


def _path_and_reference(text: str) -> tuple[Path, str | None]:
    """Split "PATH:NAME"; either may hold colons, so that PATH is the shortest that exists."""
    parts = text.split(":")
    for n_parts in range(1, len(parts)):
        path = Path(":".join(parts[:n_parts]))
        if path.exists():
            return path, ":".join(parts[n_parts:])
    return Path(text), None


def _begins_as_image(head: bytes) -> bool:
    """Tell whether HEAD is the beginning of an image's archive rather than of a root filesystem's."""
    reader = TarReader(io.BufferedReader(io.BytesIO(head)))
    names = []
    # The head may end within an entry, or the archive be bad: whoever reads it will say so.
    with suppress(ImportRefused):
        for entry in reader:
            if (name := normalised(entry.name)) != ROOT:
                names.append(name)
    return bool(names) and all(_IMAGE_MEMBER.fullmatch(name) for name in names)


def _size(file: IO[bytes]) -> int | None:
    """Return the size of FILE if it is a regular one on disk, read from its beginning."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) and file.tell() == 0 else None


def _is_plain_tar(fd: int) -> bool:
    return os.pread(fd, 5, 257) == b"ustar"
