"""Room in the pool, asked for before it is used."""

from __future__ import annotations

import os

from webserv_rt.storage.errors import PoolFull

# Left free for those that already run from the pool; nothing that is imported may take it.
RESERVE_BYTES = 16 << 20

_BLOCK = 4096
_INODE_BYTES = 512
# The kernel is asked again after so much was claimed, since others write to the pool too.
_WINDOW_BYTES = 64 << 20


class FreeSpace:
    """Counts what is written to the filesystem of DIRECTORY_FD against what it has free.

    DIRECTORY_FD stays the caller's.
    """

    def __init__(self, directory_fd: int) -> None:
        self._directory_fd = directory_fd
        status = os.fstatvfs(directory_fd)
        self._capacity = status.f_blocks * status.f_frsize
        self._apparent = 0
        self._window = 0

    def claim(self, n_bytes: int, what: str) -> None:
        """Take N_BYTES, with the inode they need, for WHAT. Raises `PoolFull`."""
        n_bytes = (n_bytes + _BLOCK - 1) // _BLOCK * _BLOCK + _INODE_BYTES
        if n_bytes > self._window:
            self._window = min(self._available(n_bytes, what), max(_WINDOW_BYTES, n_bytes))
        self._window -= n_bytes

    def claim_length(self, n_bytes: int, what: str) -> None:
        """Count a file of N_BYTES, holes included, for WHAT.

        Raises `PoolFull` when all of them make more than the pool: no instance could ever fill such files,
        and hashing their holes would take for ever.
        """
        self._apparent += n_bytes
        if self._apparent > self._capacity:
            raise PoolFull(self._apparent, self._capacity, f"{what} with its holes")

    def _available(self, n_bytes: int, what: str) -> int:
        status = os.fstatvfs(self._directory_fd)
        available = status.f_bavail * status.f_frsize - RESERVE_BYTES
        if available < n_bytes:
            raise PoolFull(n_bytes, available, what)
        if status.f_files and status.f_favail == 0:  # btrfs has no fixed number and says 0 of 0
            raise PoolFull(n_bytes, 0, f"{what} (no inode is left)")
        return available
