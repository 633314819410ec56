"""What an instance costs at present: memory, processor time, storage."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from webserv_rt.incarnation import Incarnation
from webserv_rt.storage.walk import Found, walk

# struct fiemap of linux/fiemap.h: start, length, flags, mapped extents, room for extents, reserved; then
# extents of 56 bytes with logical, physical, length, two reserved, flags, three reserved.
_FS_IOC_FIEMAP: Final = 0xC020660B
_FIEMAP_HEADER: Final = struct.Struct("<QQIIII")
_FIEMAP_EXTENT: Final = struct.Struct("<QQQQQIIII")
_EXTENT_SHARED: Final = 0x2000
_EXTENT_LAST: Final = 0x1
_N_EXTENTS: Final = 256


@dataclass(frozen=True)
class InstanceStatistics:
    """Bytes and milliseconds; a figure that this kernel does not give is None.

    `memory_bytes` is the cgroup's charge (page cache that the instance was first to read included),
    `pss_bytes` the sum of the processes' proportional set sizes. `storage_bytes` is what the instance's files
    hold for themselves on the pool: blocks shared by reflink with the base do not count.
    """

    n_processes: int
    memory_bytes: int | None
    memory_peak_bytes: int | None
    pss_bytes: int
    cpu_ms: float | None
    storage_bytes: int


def measure(incarnation: Incarnation) -> InstanceStatistics:
    """Read everything now; takes a few milliseconds per process."""
    group = incarnation.cgroup.statistics()
    pids = incarnation.cgroup.pids()
    return InstanceStatistics(
        n_processes=len(pids),
        memory_bytes=group.memory_bytes,
        memory_peak_bytes=group.memory_peak_bytes,
        pss_bytes=sum(_pss_bytes(pid) for pid in pids),
        cpu_ms=None if group.cpu_us is None else group.cpu_us / 1000,
        storage_bytes=_own_bytes(incarnation.layers.directory.fileno()),
    )


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _own_bytes(directory_fd: int) -> int:
    return sum(_file_own_bytes(found) for found in walk(directory_fd, skip_too_deep=True))


def _file_own_bytes(found: Found) -> int:
    blocks = found.status.st_blocks * 512
    if not stat.S_ISREG(found.status.st_mode) or blocks == 0:
        return blocks
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(found.name, flags, dir_fd=found.dir_fd)
    try:
        return max(0, blocks - _shared_bytes(fd))
    finally:
        os.close(fd)


def _shared_bytes(fd: int) -> int:
    shared = 0
    start = 0
    while True:
        room = bytes(_N_EXTENTS * _FIEMAP_EXTENT.size)
        request = array.array("B", _FIEMAP_HEADER.pack(start, 2**64 - 1 - start, 0, 0, _N_EXTENTS, 0) + room)
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, request, True)
        n_mapped = _FIEMAP_HEADER.unpack_from(request)[3]
        if n_mapped == 0:
            return shared
        for index in range(n_mapped):
            offset = _FIEMAP_HEADER.size + index * _FIEMAP_EXTENT.size
            logical, _, length, _, _, flags, *_ = _FIEMAP_EXTENT.unpack_from(request, offset)
            if flags & _EXTENT_SHARED:
                shared += length
            start = logical + length
        if flags & _EXTENT_LAST:
            return shared
