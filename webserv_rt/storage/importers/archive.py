"""Import a tar archive of a root filesystem, from a file or a stream."""

from __future__ import annotations

import io
import stat
from typing import Any

from webserv_rt.storage import xattrs
from webserv_rt.storage.entry import ROOT
from webserv_rt.storage.errors import ImportRefused, SourceDamaged, refused_by_system, shown
from webserv_rt.storage.importers.archive_path import normalised
from webserv_rt.storage.importers.tar_reader import TarEntry, TarReader
from webserv_rt.storage.tree_writer import Metadata, TreeWriter

_MAX_TRAILING_BYTES = 64 << 20  # padding behind the end; tar's largest usual record is a few MiB


def import_archive(stream: io.BufferedReader[Any], writer: TreeWriter) -> None:
    """Write the tar archive STREAM (decompressed) through WRITER, to its last byte.

    An entry that comes again replaces the earlier one. Raises `ImportRefused`, `SourceDamaged`, `PoolFull`.
    """
    reader = TarReader(stream)
    for entry in reader:
        write_entry(writer, reader, entry, normalised(entry.name))
    if not reader.complete:
        raise SourceDamaged("the tar archive is cut off: its end marker is missing")
    read_to_end(stream)


def write_entry(writer: TreeWriter, reader: TarReader, entry: TarEntry, path: str) -> None:
    """Write ENTRY as PATH; READER stands at its data."""
    try:
        _write(writer, reader, entry, path)
    except OSError as error:
        raise refused_by_system("write", path, error) from error


def read_to_end(stream: io.BufferedReader[Any]) -> None:
    """Read what follows the end of an archive, so that checksums over all of it are checked."""
    n_read = 0
    while piece := stream.read(1 << 20):
        n_read += len(piece)
        if n_read > _MAX_TRAILING_BYTES:
            raise SourceDamaged("much data follows the end of the tar archive; it is not one archive")


def _write(writer: TreeWriter, reader: TarReader, entry: TarEntry, path: str) -> None:
    if path == ROOT and entry.kind != "directory":
        raise ImportRefused(f"the entry {shown(entry.name)} is the root, but a {entry.kind}")
    if entry.kind == "hard link":
        writer.hard_link(path, normalised(entry.link_name, f"the target of the hard link {shown(path)}"))
        return
    metadata = _metadata(entry, path)
    if entry.kind == "directory":
        writer.directory(path, metadata)
    elif entry.kind == "file":
        writer.file(path, metadata, entry.size, entry.segments, lambda _, buffer: reader.read_into(buffer))
    elif entry.kind == "symlink":
        if "\0" in entry.link_name:
            raise ImportRefused(f"the symbolic link {shown(path)} has a NUL in its target")
        writer.symlink(path, entry.link_name, metadata)
    elif entry.kind == "fifo":
        writer.fifo(path, metadata)
    else:
        kind = stat.S_IFCHR if entry.kind == "character" else stat.S_IFBLK
        writer.device(path, kind, entry.major, entry.minor, metadata)


def _metadata(entry: TarEntry, path: str) -> Metadata:
    xattrs.refuse_overlay(path, entry.xattrs)
    kept = {name: value for name, value in entry.xattrs.items() if xattrs.is_kept(name)}
    if any("\0" in name for name in kept):
        raise ImportRefused(f"{shown(path)} has an attribute with a NUL in its name")
    return Metadata(entry.mode, entry.uid, entry.gid, entry.mtime_ns, kept)
