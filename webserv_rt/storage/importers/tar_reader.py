"""Read tar streams: v7, ustar, GNU and pax, with everything that a root filesystem needs.

The standard library's tarfile does not do: it takes a damaged header for the end of the archive, turns
numbers that it cannot read into 0 (root's id), keeps modification times as floats, and reads extended headers
of any size into memory. Here a header that cannot be understood is an error, always.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from webserv_rt.storage import xattrs
from webserv_rt.storage.errors import SourceDamaged, shown

BLOCK = 512
_MAX_EXTENDED_BYTES = 8 << 20  # long names, pax headers: attributes are 64 KiB at most

TarKind = Literal["file", "hard link", "symlink", "character", "block", "directory", "fifo"]

_KINDS: dict[bytes, TarKind] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"S": "file",
    b"1": "hard link",
    b"2": "symlink",
    b"3": "character",
    b"4": "block",
    b"5": "directory",
    b"6": "fifo",
}
_PAX_RECORD = re.compile(rb"(\d{1,20}) ([^=]+)=")
_PAX_TIME = re.compile(rb"(-?)(\d{1,19})(?:\.(\d*))?")
_XATTR = "SCHILY.xattr."
_ACLS = {"SCHILY.acl.access": xattrs.ACCESS_ACL, "SCHILY.acl.default": xattrs.DEFAULT_ACL}


@dataclass(slots=True)
class TarEntry:
    """One entry. `segments` are the (offset, length) of a file's data, which the stream has in a row."""

    name: str
    kind: TarKind
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    link_name: str
    major: int
    minor: int
    xattrs: dict[str, bytes] = field(default_factory=dict)
    segments: list[tuple[int, int]] = field(default_factory=list)


class TarReader:
    """Iterates over the entries of STREAM; `read_into` reads data of the present one, the rest is skipped.

    `complete` is true once the archive's end marker was met; STREAM is then right behind it. `position` is
    that of STREAM: when an entry was just met, that of its data.
    """

    def __init__(self, stream: io.BufferedReader[Any]) -> None:
        self.complete = False
        self._stream = stream
        self.position = 0
        self._remaining = 0
        self._padding = 0
        self._global_pax: dict[str, bytes] = {}

    def __iter__(self) -> Iterator[TarEntry]:
        pax: dict[str, bytes] = {}
        long_name = long_link = b""
        while header := self._header():
            kind = header[156:157]
            if kind in (b"x", b"X"):
                pax |= _pax_records(self._extended(header))
            elif kind == b"g":
                self._global_pax |= _pax_records(self._extended(header))
            elif kind == b"L":
                long_name = self._extended(header).split(b"\0")[0]
            elif kind == b"K":
                long_link = self._extended(header).split(b"\0")[0]
            elif kind != b"V":  # a volume's label
                try:
                    entry = self._entry(header, self._global_pax | pax, long_name, long_link)
                except (ValueError, IndexError) as error:
                    raise self._damaged(str(error)) from error
                yield entry
                pax, long_name, long_link = {}, b"", b""

    def read_into(self, buffer: memoryview) -> int:
        """Read data of the present entry into BUFFER; return the bytes read, which are never 0."""
        n_read = self._stream.readinto(buffer[: self._remaining])
        if not n_read:
            raise self._cut_off()
        self.position += n_read
        self._remaining -= n_read
        return n_read

    def _header(self) -> bytes | None:
        """Return the next header, or nothing at the end of the archive."""
        self._skip()
        block = self._stream.read(BLOCK)
        if not block:
            return None
        if len(block) < BLOCK:
            raise self._cut_off()
        self.position += BLOCK
        if block.count(0) == BLOCK:
            self.complete = True
            return None
        try:
            expected = _number(block[148:156])
        except ValueError:
            expected = -1
        if sum(block) - sum(block[148:156]) + 8 * ord(" ") != expected:
            raise self._damaged("its checksum is wrong")
        self._remaining = self._padding = 0
        return block

    def _extended(self, header: bytes) -> bytes:
        """Return the data of an extended HEADER."""
        try:
            size = _number(header[124:136])
        except ValueError as error:
            raise self._damaged(str(error)) from error
        if not 0 <= size <= _MAX_EXTENDED_BYTES:
            raise self._damaged(f"an extended header of {size} bytes")
        self._begin_data(size)
        return self._take(size)

    def _entry(self, header: bytes, pax: dict[str, bytes], long_name: bytes, long_link: bytes) -> TarEntry:
        pax = {key: value for key, value in pax.items() if value}  # an empty value takes the key away
        name = pax.get("GNU.sparse.name") or pax.get("path") or long_name or _ustar_name(header)
        kind = _KINDS.get(header[156:157])
        if kind is None:
            raise ValueError(f"{shown(_text(name))} has the type {header[156:157]!r}, which is not supported")
        if kind == "file" and name.endswith(b"/"):
            kind = "directory"
        size = _decimal(pax["size"]) if "size" in pax else _number(header[124:136])
        entry = TarEntry(
            name=_text(name),
            kind=kind,
            mode=_number(header[100:108]) & 0o7777,
            uid=_id(pax.get("uid"), header[108:116]),
            gid=_id(pax.get("gid"), header[116:124]),
            size=size if kind == "file" else 0,
            mtime_ns=_time_ns(pax.get("mtime"), header[136:148]),
            link_name=_text(pax.get("linkpath") or long_link or _string(header[157:257])),
            major=_device_number(header[329:337], 12) if kind in ("character", "block") else 0,
            minor=_device_number(header[337:345], 20) if kind in ("character", "block") else 0,
            xattrs=_xattrs(pax),
        )
        if not 0 <= entry.size < 1 << 63:
            raise ValueError(f"{shown(entry.name)} has a size of {entry.size} bytes")
        self._begin_data(entry.size)
        self._locate_data(entry, header, pax)
        return entry

    def _locate_data(self, entry: TarEntry, header: bytes, pax: dict[str, bytes]) -> None:
        """Fill in where the data of ENTRY, a file, goes; the maps of sparse files come in four formats."""
        if header[156:157] == b"S":
            entry.size = _number(header[483:495])
            numbers = self._old_gnu_map(header)
        elif pax.get("GNU.sparse.major") == b"1":
            entry.size = _decimal(pax.get("GNU.sparse.realsize", b""))
            numbers = self._pax_map()
        elif "GNU.sparse.map" in pax or "GNU.sparse.size" in pax:
            entry.size = _decimal(pax.get("GNU.sparse.size", b""))
            numbers = [_decimal(number) for number in pax.get("GNU.sparse.map", b"").split(b",")]
        else:
            entry.segments = [(0, entry.size)] if entry.size else []
            return
        entry.segments = _segments(numbers, entry.size)
        if sum(length for _, length in entry.segments) != self._remaining:
            raise ValueError(f"the map of the sparse file {shown(entry.name)} does not fit its data")

    def _old_gnu_map(self, header: bytes) -> list[int]:
        numbers = _number_fields(header[386:482])
        more = header[482]
        # The map goes on in blocks of its own, which the size of the data does not count.
        while more:
            if len(numbers) > _MAX_EXTENDED_BYTES // 12:
                raise ValueError("the map of a sparse file is too long")
            data = self._take_block()
            numbers += _number_fields(data[:504])
            more = data[504]
        return numbers

    def _pax_map(self) -> list[int]:
        """Read the map in front of the data: decimal lines, padded to a block, the number of pairs first."""
        lines = self._take(BLOCK).split(b"\n")
        n_numbers = 2 * _decimal(lines[0])
        if n_numbers > _MAX_EXTENDED_BYTES // 2:
            raise ValueError("the map of a sparse file is too long")
        while len(lines) < n_numbers + 2:
            data = self._take(BLOCK).split(b"\n")
            lines[-1] += data[0]
            lines += data[1:]
        return [_decimal(line) for line in lines[1 : n_numbers + 1]]

    def _begin_data(self, size: int) -> None:
        self._remaining = size
        self._padding = -size % BLOCK

    def _take(self, n_bytes: int) -> bytes:
        """Read N_BYTES of the present entry's data."""
        if n_bytes > self._remaining:
            raise ValueError("its data ends too early")
        data = self._stream.read(n_bytes)
        if len(data) < n_bytes:
            raise self._cut_off()
        self.position += n_bytes
        self._remaining -= n_bytes
        return data

    def _take_block(self) -> bytes:
        data = self._stream.read(BLOCK)
        if len(data) < BLOCK:
            raise self._cut_off()
        self.position += BLOCK
        return data

    def _skip(self) -> None:
        n_left = self._remaining + self._padding
        self._remaining = self._padding = 0
        if self._stream.seekable():
            self._stream.seek(n_left, io.SEEK_CUR)
            self.position += n_left
            return
        while n_left:
            data = self._stream.read(min(n_left, 1 << 20))
            if not data:
                raise self._cut_off()
            self.position += len(data)
            n_left -= len(data)

    def _cut_off(self) -> SourceDamaged:
        return SourceDamaged(f"the tar archive is cut off after {self.position} bytes")

    def _damaged(self, reason: str) -> SourceDamaged:
        return SourceDamaged(f"the tar archive is damaged before byte {self.position}: {reason}")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _string(data: bytes) -> bytes:
    return data.split(b"\0")[0]


def _number(data: bytes) -> int:
    """Return the number in the header field DATA: octal digits, or GNU's base 256 for what does not fit."""
    if data[0] & 0x80:
        value = int.from_bytes(data, "big", signed=False) & ((1 << (8 * len(data) - 1)) - 1)
        return value - (1 << (8 * len(data) - 1)) if data[0] & 0x40 else value
    digits = data.split(b"\0")[0].strip()
    if digits.strip(b"01234567"):
        raise ValueError(f"{digits!r} is no octal number")
    return int(digits or b"0", 8)


def _number_fields(data: bytes) -> list[int]:
    """Return the numbers of an old GNU sparse map, up to the first empty field."""
    fields = [data[start : start + 12] for start in range(0, len(data), 12)]
    numbers = []
    for data in fields:
        if not data.strip(b"\0"):
            break
        numbers.append(_number(data))
    return numbers


def _decimal(data: bytes) -> int:
    if not data.isdigit() or len(data) > 20:
        raise ValueError(f"{data[:40]!r} is no number")
    return int(data)


def _id(pax: bytes | None, field: bytes) -> int:
    value = _decimal(pax) if pax else _number(field)
    if not 0 <= value < 0xFFFFFFFF:
        raise ValueError(f"{value} is no user or group id")
    return value


def _device_number(field: bytes, n_bits: int) -> int:
    value = _number(field)
    if not 0 <= value < 1 << n_bits:
        raise ValueError(f"{value} is no device number")
    return value


def _time_ns(pax: bytes | None, field: bytes) -> int:
    seconds, fraction_ns = (0, 0) if pax else (_number(field), 0)
    if pax:
        match = _PAX_TIME.fullmatch(pax)
        if match is None:
            raise ValueError(f"{pax[:40]!r} is no time")
        sign = -1 if match[1] else 1
        seconds, fraction_ns = sign * int(match[2]), sign * int((match[3] or b"")[:9].ljust(9, b"0"))
    if abs(seconds) >= 1 << 40:
        raise ValueError(f"the time {seconds} is out of range")
    return seconds * 1_000_000_000 + fraction_ns


def _ustar_name(header: bytes) -> bytes:
    name = _string(header[:100])
    if header[257:263] == b"ustar\0":  # GNU's own magic has other fields there
        prefix = _string(header[345:500])
        return prefix + b"/" + name if prefix else name
    return name


def _pax_records(data: bytes) -> dict[str, bytes]:
    """Return the records of a pax header; sparse maps of version 0.0, which repeat keys, as version 0.1."""
    records: dict[str, bytes] = {}
    sparse_map = []
    position = 0
    while position < len(data):
        match = _PAX_RECORD.match(data, position)
        end = position + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1] != ord("\n"):
            raise SourceDamaged("the tar archive is damaged: a pax header has a record that cannot be read")
        key, value = _text(match[2]), data[match.end() : end - 1]
        if key in ("GNU.sparse.offset", "GNU.sparse.numbytes"):
            sparse_map.append(value)
        records[key] = value
        position = end
    if sparse_map:
        records["GNU.sparse.map"] = b",".join(sparse_map)
    return records


def _xattrs(pax: dict[str, bytes]) -> dict[str, bytes]:
    values = {}
    for key, value in pax.items():
        if key.startswith(_XATTR):
            # GNU tar writes "=" and "%" in names as "%3D" and "%25".
            values[key[len(_XATTR) :].replace("%3D", "=").replace("%25", "%")] = value
    for key, name in _ACLS.items():
        if key in pax and name not in values:
            values[name] = xattrs.acl_from_text(_text(pax[key]))
    return values


def _segments(numbers: list[int], size: int) -> list[tuple[int, int]]:
    """Return the sparse map NUMBERS of a file of SIZE bytes as (offset, length), empty ones left out."""
    end = 0
    segments = []
    for offset, length in zip(numbers[::2], numbers[1::2], strict=True):
        if offset < end or length < 0 or offset + length > size:
            raise ValueError("the map of a sparse file is out of order or range")
        end = offset + length
        if length:
            segments.append((offset, length))
    return segments
