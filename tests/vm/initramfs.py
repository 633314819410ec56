"""Write an initramfs: a cpio archive in the format "newc" (kernel: driver-api/early-userspace)."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import BinaryIO


class Initramfs:
    """An archive being written to PATH; entries appear in the order added."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._n_entries = 0

    def directory(self, name: str) -> None:
        self._entry(name, stat.S_IFDIR | 0o755)

    def file(self, name: str, content: bytes, *, executable: bool = False) -> None:
        self._entry(name, stat.S_IFREG | (0o755 if executable else 0o644), content)

    def character_device(self, name: str, major: int, minor: int) -> None:
        self._entry(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def close(self) -> None:
        self._entry("TRAILER!!!", 0)
        self._file.close()

    def _entry(self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        self._n_entries += 1
        raw_name = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, device of the file, device named, name's size, check
        numbers = [self._n_entries, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(raw_name), 0]
        header = b"070701" + b"".join(b"%08X" % number for number in numbers)
        for part in (header + raw_name, content):
            self._file.write(part + b"\0" * (-len(part) % 4))
