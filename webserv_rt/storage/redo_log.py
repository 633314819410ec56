"""InnoDB's redo log as MariaDB 10.8 and later write it, read just far enough to see whether it is clean.

One file, `ib_logfile0`, big-endian:

- byte 0: the format, "Phys" (top bit set: encrypted); byte 8: the LSN of the first byte of log;
  byte 508: CRC-32C.
- bytes 4096 and 8192: two checkpoints, written in turn; each 64 bytes: the checkpoint's LSN, the LSN where
  recovery finds its FILE_CHECKPOINT record, zeroes, CRC-32C.
- byte 12288 to the end: the log proper, a ring.

The log is a sequence of mini-transactions: records, one end byte (1 and 0 by turns, each time around the
ring), CRC-32C of the records. A record is a type byte whose low half is the length of what follows; 0 there
means that the length, less some, comes next as a number of 1 to 3 bytes. No record begins with 0 or 1.

At a clean shutdown all pages are written, then one FILE_CHECKPOINT that names its own LSN; nothing follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from webserv_rt.storage.crc32c import crc32c

_FORMAT: Final = int.from_bytes(b"Phys", "big")
_ENCRYPTED: Final = 1 << 31
_CHECKPOINT_OFFSETS: Final = (4096, 8192)
_LOG_OFFSET: Final = 12288
_FILE_CHECKPOINT: Final = b"\xfa\x00\x00"  # its type with 10 bytes to follow: two of page number, 8 of LSN


class UnreadableRedoLog(ValueError):
    """The file is no redo log of a format known here, or damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """Where recovery begins. Both are LSNs: bytes of log since the database was made."""

    lsn: int
    record_lsn: int


class RedoLog:
    """A redo log at PATH, read whole into memory. Raises `UnreadableRedoLog`, OSError."""

    def __init__(self, path: Path) -> None:
        self._bytes = path.read_bytes()
        if len(self._bytes) <= _LOG_OFFSET:
            raise UnreadableRedoLog(f"it is only {len(self._bytes)} bytes long")
        form = self._number(0, 4)
        if form == _FORMAT | _ENCRYPTED:
            raise UnreadableRedoLog("it is encrypted; build the base with innodb_encrypt_log=OFF")
        if form != _FORMAT:
            raise UnreadableRedoLog(f"its format {form:#010x} is not that of MariaDB 10.8 or later")
        if self._number(508, 4) != crc32c(self._bytes[:508]):
            raise UnreadableRedoLog("the checksum of its header is wrong")
        self._first_lsn = self._number(8, 8)
        self.checkpoint = self._newest_checkpoint()

    def is_clean(self) -> bool:
        """Say whether the log ends with the checkpoint that a clean shutdown writes last."""
        lsn = self.checkpoint.lsn
        record = _FILE_CHECKPOINT + lsn.to_bytes(8, "big")
        if self.checkpoint.record_lsn != lsn or self._read(lsn, len(record)) != record:
            return False
        end = self._end_of_mini_transaction(lsn)
        return end is not None and self._end_of_mini_transaction(end) is None

    def _newest_checkpoint(self) -> Checkpoint:
        blocks = [self._bytes[offset : offset + 64] for offset in _CHECKPOINT_OFFSETS]
        valid = [
            Checkpoint(int.from_bytes(block[:8], "big"), int.from_bytes(block[8:16], "big"))
            for block in blocks
            if crc32c(block[:60]) == int.from_bytes(block[60:], "big")
        ]
        checkpoint = max(valid, key=lambda found: found.lsn, default=None)
        if checkpoint is None or checkpoint.lsn < self._first_lsn:
            raise UnreadableRedoLog("neither of its checkpoints is valid")
        return checkpoint

    def _end_of_mini_transaction(self, lsn: int) -> int | None:
        """Return the LSN after the mini-transaction at LSN, or None if what is there is old or no log."""
        end = lsn
        while (first := self._read(end, 1)[0]) > 1:
            length = first & 0x0F or self._long_length(end + 1)
            end += 1 + length
            if end - lsn > self._ring_bytes:
                return None
        n_rounds = (end - self._first_lsn) // self._ring_bytes
        if end == lsn or first == n_rounds % 2:
            return None
        stored = int.from_bytes(self._read(end + 1, 4), "big")
        return end + 5 if stored == crc32c(self._read(lsn, end - lsn)) else None

    def _long_length(self, lsn: int) -> int:
        """Return the length after the type byte of a record that is longer than 15 bytes."""
        head, second, third = self._read(lsn, 3)
        if head < 0x80:
            return head + 15
        if head < 0xC0:
            return ((head & 0x3F) << 8 | second) + 0x80 + 15
        return ((head & 0x1F) << 16 | second << 8 | third) + 0x4080 + 15

    @property
    def _ring_bytes(self) -> int:
        return len(self._bytes) - _LOG_OFFSET

    def _read(self, lsn: int, n_bytes: int) -> bytes:
        """Return N_BYTES of log from LSN on, around the end of the file if need be."""
        start = _LOG_OFFSET + (lsn - self._first_lsn) % self._ring_bytes
        straight = self._bytes[start : start + n_bytes]
        return straight + self._bytes[_LOG_OFFSET : _LOG_OFFSET + n_bytes - len(straight)]

    def _number(self, offset: int, n_bytes: int) -> int:
        return int.from_bytes(self._bytes[offset : offset + n_bytes], "big")
