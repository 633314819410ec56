"""Ranges of user and group ids: one per instance, so that per-uid limits and ownership are its own.

The ids lie between what systemd gives to containers (up to 0x6fffffff) and what it calls invalid (from
0x7fffffff). Hosts share them by blocks; a block is held by a lock on a file that the kernel drops with the
process, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

from webserv_rt.errors import WebservError
from webserv_rt.kernel.descriptor import Descriptor, Lock
from webserv_rt.kernel.namespace import new_user_namespace

FIRST_ID: Final = 0x70000000
IDS_PER_RANGE: Final = 65536
RANGES_PER_BLOCK: Final = 64
N_BLOCKS: Final = 63
LOCK_DIRECTORY: Final = Path("/run/webserv_rt/id-blocks")


class IdRanges:
    """Hands out ranges of 65,536 host ids; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[Lock] = []
        self._free: list[int] = []

    def take(self) -> int:
        """Return the first id of a range that no other instance on this machine has."""
        with self._lock:
            if not self._free:
                self._take_block()
            return self._free.pop()

    def give_back(self, first_id: int) -> None:
        """Return a range once nothing that ran or was stored under it is left."""
        with self._lock:
            self._free.insert(0, first_id)

    def close(self) -> None:
        """Release all blocks."""
        with self._lock:
            for block in self._blocks:
                block.close()
            self._blocks.clear()
            self._free.clear()

    def _take_block(self) -> None:
        LOCK_DIRECTORY.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(N_BLOCKS):
            block = Lock(os.open(LOCK_DIRECTORY / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            try:
                fcntl.flock(block.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                block.close()
                continue
            first = FIRST_ID + number * RANGES_PER_BLOCK * IDS_PER_RANGE
            self._blocks.append(block)
            self._free.extend(first + index * IDS_PER_RANGE for index in reversed(range(RANGES_PER_BLOCK)))
            return
        raise WebservError(
            f"all {N_BLOCKS * RANGES_PER_BLOCK} id ranges of this machine are taken: "
            "remove instances, or end other hosts"
        )


class Identity:
    """A range of ids and the user namespace that maps it: who an instance is to the host."""

    def __init__(self, ids: IdRanges, init_program: Descriptor) -> None:
        self._ids = ids
        self.root_id = ids.take()
        try:
            self.namespace = new_user_namespace(init_program, self.root_id, IDS_PER_RANGE)
        except BaseException:
            ids.give_back(self.root_id)
            raise

    def close(self) -> None:
        """Give the range back; nothing that ran or was stored under it may be left."""
        self.namespace.close()
        self._ids.give_back(self.root_id)

    def __enter__(self) -> Identity:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
