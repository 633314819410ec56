"""The manifest of a base: one line of JSON per entry, in the order of the scan, compressed.

Its SHA-256, taken before compression, is the digest of the base. It covers names, kinds, modes, owners,
modification times (whole seconds), sizes, contents, targets, hard links, devices and extended attributes,
and nothing else: neither where the tree came from nor how it lies on disk.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import zstandard

from webserv_rt.storage.entry import Entry

_HEADER = {"manifest": 1}


class Summary(NamedTuple):
    """What a manifest comes to: `digest` is "sha256:HEX", `size_bytes` that of all files, hard links once."""

    digest: str
    n_entries: int
    size_bytes: int


def write_manifest(path: Path, entries: Iterable[Entry]) -> Summary:
    """Write ENTRIES to the new file PATH and return what they come to. Does not sync."""
    digest = hashlib.sha256()
    n_entries = size_bytes = 0
    with path.open("xb") as file, zstandard.ZstdCompressor().stream_writer(file) as compressed:
        for line in _lines(entries):
            digest.update(line[0])
            compressed.write(line[0])
            n_entries += 1
            size_bytes += line[1]
    return Summary(f"sha256:{digest.hexdigest()}", n_entries - 1, size_bytes)


def read_manifest(path: Path) -> Iterator[Entry]:
    """Yield the entries of the manifest PATH. Raises OSError and ValueError."""
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
            lines = io.TextIOWrapper(io.BufferedReader(reader), encoding="ascii")
            if json.loads(lines.readline() or "null") != _HEADER:
                raise ValueError("no manifest of this version")
            for line in lines:
                yield Entry.from_json(json.loads(line))
    except (zstandard.ZstdError, KeyError, TypeError) as error:
        raise ValueError(f"cannot be read: {error}") from error


def manifest_digest(path: Path) -> str:
    """Return the digest of the manifest PATH as it is. Raises OSError and ValueError."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
            while piece := reader.read(1 << 20):
                digest.update(piece)
    except zstandard.ZstdError as error:
        raise ValueError(f"cannot be read: {error}") from error
    return f"sha256:{digest.hexdigest()}"


def _lines(entries: Iterable[Entry]) -> Iterator[tuple[bytes, int]]:
    """Yield every line of the manifest with the bytes of content that it adds."""
    yield _line(_HEADER), 0
    for entry in entries:
        yield _line(entry.to_json()), 0 if entry.hard_link else entry.size


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
