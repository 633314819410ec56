"""CRC-32C (Castagnoli), the checksum of InnoDB's redo log and of PostgreSQL's control file."""

from __future__ import annotations

from typing import Final

_REFLECTED_POLYNOMIAL: Final = 0x82F63B78


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_REFLECTED_POLYNOMIAL if byte & 1 else 0)
    return byte


_REMAINDERS: Final = tuple(_remainder(byte) for byte in range(256))


def crc32c(data: bytes) -> int:
    """Return the checksum of DATA. Meant for kilobytes: about 10 MB/s."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = _REMAINDERS[(checksum ^ byte) & 0xFF] ^ (checksum >> 8)
    return checksum ^ 0xFFFFFFFF
