"""The image of a pool: a sparse file PATH.img with an XFS filesystem, loop-mounted on PATH.

The image has no name until it is complete, the pool's directories included: a pool is never half made.
Whoever mounts, grows or destroys it holds a lock (flock) on the image.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from webserv_rt.kernel import loop
from webserv_rt.kernel.descriptor import Descriptor, Lock
from webserv_rt.kernel.nameless import link_nameless, open_nameless
from webserv_rt.storage.errors import shown_bytes
from webserv_rt.storage.pool_errors import PoolInUse, PoolNotFound, PoolSizeRefused

# mkfs.xfs makes no smaller filesystem.
MINIMUM_BYTES: Final = 300 << 20
_LARGEST_DEFAULT_BYTES: Final = 64 << 30
_GRANULE_BYTES: Final = 1 << 20
_PATIENCE_S: Final = 0.5
_RELEASE_TIMEOUT_S: Final = 10.0


class PoolImage:
    """The image that belongs to the pool at TARGET; it need not exist."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.img")

    def exists(self) -> bool:
        """Tell whether there is such an image, mounted or not."""
        return self.path.exists()

    def host_free_bytes(self) -> int:
        """Return what the filesystem that holds the image has left: a sparse image can grow by no more."""
        status = os.statvfs(self.path.parent)
        return status.f_bavail * status.f_frsize

    def create(self, size_bytes: int | None, parts: tuple[str, ...], file_name: str, contents: bytes) -> None:
        """Make the image, with the directories PARTS and one file in it.

        The size defaults to half of what the host has free, 64 GiB at most. Raises FileExistsError.
        """
        if size_bytes is None:
            size_bytes = min(_LARGEST_DEFAULT_BYTES, self.host_free_bytes() // 2)
        size_bytes = self._checked_size(size_bytes, n_allocated=0)
        entries = [f"{file_name} ---600 0 0 {{contents}}", *(f"{part} d--700 0 0\n$" for part in parts)]
        prototype = "\n".join(["/", "0 0", "d--700 0 0", *entries, "$", ""])
        with Descriptor(open_nameless(self.path.parent)) as file:
            os.ftruncate(file.fileno(), size_bytes)
            loop.make_xfs(file.fileno(), prototype, contents)
            link_nameless(file.fileno(), self.path)

    def mount(self) -> bool:
        """Mount the image unless it is mounted; return whether that was needed."""
        with self._lock():
            if self.is_mounted():
                return False
            self.target.mkdir(mode=0o700, exist_ok=True)
            if self.target.is_mount():
                raise PoolInUse(
                    f"{self.target} is mounted, but not from {self.path}: unmount it, or move the image"
                )
            loop.mount_xfs(self.path, self.target)
            return True

    def is_mounted(self) -> bool:
        """Tell whether the image is mounted on the target."""
        device = loop.loop_device(self.target) if self.target.is_mount() else None
        return device is not None and self._is_behind(device)

    def grow(self, size_bytes: int) -> None:
        """Grow the mounted image while it is in use; `PoolSizeRefused` when it is larger than that."""
        with self._lock():
            status = self.path.stat()
            if size_bytes < status.st_size:
                raise PoolSizeRefused(
                    f"the pool of {shown_bytes(status.st_size)} cannot shrink to {shown_bytes(size_bytes)}:"
                    " create a smaller one and import the bases again"
                )
            size_bytes = self._checked_size(size_bytes, n_allocated=status.st_blocks * 512)
            loop.grow_xfs(self.path, self.target, size_bytes)

    def unmount(self) -> None:
        """Unmount the image, which loses its loop device; `PoolInUse` when anybody uses it."""
        with self._lock():
            self._unmount()

    def destroy(self) -> None:
        """Unmount and remove the image and its mount point; `PoolInUse` when anybody uses it."""
        with self._lock():
            if self.is_mounted():
                self._unmount()
            self.path.unlink()
            with suppress(OSError):  # it holds what somebody put there before the pool was mounted
                self.target.rmdir()

    def _unmount(self) -> None:
        device = loop.loop_device(self.target)
        assert device is not None
        device_number = self.target.stat().st_dev
        try:
            loop.unmount(self.target)
        except loop.ToolFailed as error:
            raise PoolInUse(
                f"{error}; end the programs that use the pool (fuser -vm {self.target})"
            ) from None
        if self._is_released(device, _PATIENCE_S):
            return
        number = f"{os.major(device_number)}:{os.minor(device_number)}"
        pids = loop.unmount_copies(number)
        if not self._is_released(device, _RELEASE_TIMEOUT_S):
            loop.mount_xfs(self.path, self.target)
            raise PoolInUse(
                f"{self.target} is mounted in the mount namespaces of the processes {pids}: end them first"
            )

    def _is_released(self, device: str, timeout_s: float) -> bool:
        """Wait for the loop device to go: a process being started may have the mount for a moment more."""
        deadline = time.monotonic() + timeout_s
        while self._is_behind(device):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _is_behind(self, device: str) -> bool:
        return loop.backing_file(device) == str(self.path)

    def _checked_size(self, size_bytes: int, *, n_allocated: int) -> int:
        """Return SIZE_BYTES in whole MiB; an image that the host cannot hold would break when it fills."""
        if size_bytes < MINIMUM_BYTES:
            raise PoolSizeRefused(
                f"a pool of {shown_bytes(size_bytes)} is too small: take {shown_bytes(MINIMUM_BYTES)} or more"
            )
        free = self.host_free_bytes()
        if size_bytes - n_allocated > free:
            raise PoolSizeRefused(
                f"a pool of {shown_bytes(size_bytes)} does not fit: {self.path.parent} has"
                f" {shown_bytes(free)} free; make it smaller, or free space there"
            )
        return -(-size_bytes // _GRANULE_BYTES) * _GRANULE_BYTES

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            lock = Lock(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            raise PoolNotFound(
                f"the image {self.path} of the pool is gone: restore it, or create a pool"
            ) from None
        with lock:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
            if os.fstat(lock.fileno()).st_nlink == 0:
                raise PoolNotFound(f"the pool {self.target} was destroyed just now")
            yield
