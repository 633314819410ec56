"""Byte streams of archives: counted, hashed, decompressed."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any, Protocol

import zstandard

from webserv_rt.storage.errors import SourceDamaged

BUFFER_BYTES = 1 << 20
_INPUT_BYTES = 128 << 10
_MAX_DICTIONARY_BYTES = 256 << 20  # xz -9 needs 65 MiB, zstd --long 128 MiB; a hostile file may ask for 4 GiB


class Metered(io.RawIOBase):
    """Reads SOURCE, which stays the caller's, showing each piece to OBSERVERS.

    A read fills its buffer: that matters for pipes, whose short reads would make short writes later.
    """

    def __init__(self, source: IO[bytes] | io.RawIOBase, *observers: Callable[[memoryview], object]) -> None:
        self._source = source
        self._observers = observers

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        n_read = 0
        while n_read < len(view):
            piece = self._source.read(len(view) - n_read)
            if not piece:
                break
            view[n_read : n_read + len(piece)] = piece
            n_read += len(piece)
        for observe in self._observers:
            observe(view[:n_read])
        return n_read


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """zlib's object with the face of those of bz2 and lzma."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)


class _Decompressed(io.RawIOBase):
    """What SOURCE decompresses to; several members in a row count as one, zero padding after them as none."""

    def __init__(self, source: io.BufferedReader[Any], make: Callable[[], _Decompressor], name: str) -> None:
        self._source = source
        self._make = make
        self._name = name
        self._decompressor = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        try:
            piece = self._next(len(view))
        except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
            raise SourceDamaged(f"the {self._name} data is corrupt: {error}") from error
        view[: len(piece)] = piece
        return len(piece)

    def _next(self, max_length: int) -> bytes:
        data = b""
        while True:
            if self._decompressor.eof:
                data = self._decompressor.unused_data or self._source.read(_INPUT_BYTES)
                if not data.strip(b"\0"):
                    return b""
                self._decompressor = self._make()
            elif self._decompressor.needs_input:
                data = self._source.read(_INPUT_BYTES)
            piece = self._decompressor.decompress(data, max_length)
            if piece:
                return piece
            if not data and not self._decompressor.eof and self._decompressor.needs_input:
                raise EOFError("it ends too early")
            data = b""


class _Zstandard(io.RawIOBase):
    """What SOURCE decompresses to, frame after frame."""

    def __init__(self, source: io.BufferedReader[Any]) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_DICTIONARY_BYTES)
        self._reader = decompressor.stream_reader(source, read_size=_INPUT_BYTES, read_across_frames=True)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            return self._reader.readinto(buffer)
        except zstandard.ZstdError as error:
            raise SourceDamaged(f"the zstd data is corrupt: {error}") from error


def _lzma() -> _Decompressor:
    return lzma.LZMADecompressor(memlimit=_MAX_DICTIONARY_BYTES)


_FORMATS: tuple[tuple[bytes, str, Callable[[], _Decompressor]], ...] = (
    (b"\x1f\x8b", "gzip", _Gzip),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\0", "xz", _lzma),
)
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # preceded by a byte 0x50 to 0x5f


def decompressed(source: io.RawIOBase) -> io.BufferedReader[Any]:
    """Return what SOURCE holds, decompressed when it begins as gzip, bzip2, xz or zstd data does."""
    compressed = io.BufferedReader(source, BUFFER_BYTES)
    magic = compressed.peek(6)[:6]
    if magic.startswith(_ZSTD_MAGIC) or magic[1:4] == _ZSTD_SKIPPABLE:
        return io.BufferedReader(_Zstandard(compressed), BUFFER_BYTES)
    for prefix, name, make in _FORMATS:
        if magic.startswith(prefix):
            return io.BufferedReader(_Decompressed(compressed, make, name), BUFFER_BYTES)
    return compressed
