"""The pool: a directory on a filesystem that shares blocks (XFS, btrfs), which holds all else.

Where the host has no such filesystem the pool at PATH is an XFS image, PATH.img, loop-mounted on PATH. Its
root is closed to all but root: in it lie set-uid files and device nodes of other systems.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.kernel.filesystem import can_share_blocks, filesystem_of
from webserv_rt.kernel.nameless import link_nameless, open_nameless
from webserv_rt.kernel.remove import remove_tree
from webserv_rt.storage.base import Base, list_bases, open_base
from webserv_rt.storage.errors import PoolFull
from webserv_rt.storage.free_space import RESERVE_BYTES
from webserv_rt.storage.owner import (
    OwnerDirectory,
    create_owner,
    list_names,
    living_owners,
    no_new_owners,
    take_dead_owners,
)
from webserv_rt.storage.pool_errors import PoolExists, PoolInUse, PoolNotFound, PoolSizeRefused
from webserv_rt.storage.pool_file import NAME as POOL_FILE
from webserv_rt.storage.pool_file import PoolFile
from webserv_rt.storage.pool_image import PoolImage

PARTS: Final = ("bases", "snapshots", "owners", "builds")

# What a fresh instance takes at most before it has written anything.
INSTANCE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class PoolStatus:
    """What a pool is and holds, in bytes. `image` is None when the pool is a plain directory.

    `free_bytes` is what may still be written: neither the reserve nor what the host cannot give an image.
    """

    path: Path
    filesystem: str
    image: Path | None
    size_bytes: int
    used_bytes: int
    free_bytes: int
    has_project_quota: bool


class Pool:
    """An open pool; it cannot be unmounted before `close()` or the end of the `with` block."""

    def __init__(self, path: Path, identity: PoolFile, image: PoolImage | None) -> None:
        self.path = path
        self.uuid = identity.uuid
        self.created = identity.created
        self.directory = open_directory(path)
        self._image = image
        self._owners = open_directory("owners", dir_fd=self.directory.fileno())

    @classmethod
    def create(cls, path: Path, *, size_bytes: int | None = None) -> Pool:
        """Create a pool at PATH, a new or empty directory, and open it.

        SIZE_BYTES is that of the image, if there has to be one; by default half of what the host has free, at
        most 64 GiB. Raises `PoolExists`, `PoolSizeRefused`, `ToolFailed`; then nothing was created.
        """
        path = _absolute(path)
        image = PoolImage(path)
        _refuse_what_is_there(path, image)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if can_share_blocks(path if path.is_dir() else path.parent):
                _fill_directory(path, PoolFile.new())
                return cls.open(path)
            image.create(size_bytes, PARTS, POOL_FILE, PoolFile.new().to_bytes())
        except FileExistsError:
            raise PoolExists(f"another process created the pool {path} just now: open it") from None
        try:
            return cls.open(path)
        except BaseException:
            image.destroy()
            raise

    @classmethod
    def open(cls, path: Path) -> Pool:
        """Open the pool at PATH; its image is mounted if it is not, as after a reboot.

        Raises `PoolNotFound`, `PoolDamaged`, `PoolVersionUnsupported`, `ToolFailed` (mount, losetup).
        """
        path = _absolute(path)
        image = PoolImage(path) if PoolImage(path).exists() else None
        was_mounted = image is not None and image.mount()
        try:
            return cls(path, _read_identity(path), image)
        except BaseException:
            if image is not None and was_mounted:
                image.unmount()
            raise

    def status(self) -> PoolStatus:
        """Return what the pool holds now."""
        filesystem = filesystem_of(self.directory)
        status = os.fstatvfs(self.directory.fileno())
        return PoolStatus(
            path=self.path,
            filesystem=filesystem.type,
            image=None if self._image is None else self._image.path,
            size_bytes=status.f_blocks * status.f_frsize,
            used_bytes=(status.f_blocks - status.f_bfree) * status.f_frsize,
            free_bytes=max(0, self._free_bytes()),
            has_project_quota=filesystem.has_project_quota,
        )

    def require_free(self, n_bytes: int = INSTANCE_BYTES, what: str = "an instance") -> None:
        """Raise `PoolFull` unless N_BYTES can be written for WHAT without touching the reserve."""
        free = self._free_bytes()
        if free < n_bytes:
            raise PoolFull(n_bytes, free, what)

    def grow(self, size_bytes: int) -> None:
        """Grow the image to SIZE_BYTES while the pool is in use; raises `PoolSizeRefused`."""
        if self._image is None:
            raise PoolSizeRefused(f"{self.path} is a directory of the host's filesystem: grow that")
        self._image.grow(size_bytes)

    def destroy(self) -> None:
        """Remove the pool with all its bases and snapshots, and close it.

        Raises `PoolInUse` when there are owners, living or dead, or somebody else has the pool open; then the
        pool is still there.
        """
        with no_new_owners(self._owners):
            self._refuse_owners()
            if self._image is None:
                for part in PARTS:
                    remove_tree(self.directory.fileno(), part)
                os.unlink(POOL_FILE, dir_fd=self.directory.fileno())
        self.close()
        if self._image is not None:
            self._image.destroy()
            return
        with suppress(OSError):  # a mount point, or it holds other things
            self.path.rmdir()

    def bases(self) -> list[Base]:
        """Return the pool's bases, by name. Raises `BaseDamaged`."""
        return list_bases(self.path / "bases")

    def base(self, name: str) -> Base:
        """Return a base. Raises `BaseNotFound`, `BadBaseName`, `BaseDamaged`."""
        return open_base(self.path / "bases", name)

    def new_owner(self) -> OwnerDirectory:
        """Return a directory for all that this process makes; it lives as long as the process at most."""
        return create_owner(self._owners, self.path / "owners")

    def dead_owners(self) -> list[OwnerDirectory]:
        """Return the directories of owners that are gone, locked: the caller cleans up and removes each."""
        return take_dead_owners(self._owners, self.path / "owners")

    def close(self) -> None:
        """Let go of the pool; it stays mounted."""
        self._owners.close()
        self.directory.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _free_bytes(self) -> int:
        status = os.fstatvfs(self.directory.fileno())
        free = status.f_bavail * status.f_frsize
        if self._image is not None:
            free = min(free, self._image.host_free_bytes())
        return free - RESERVE_BYTES

    def _refuse_owners(self) -> None:
        pids = living_owners(self._owners)
        if pids:
            raise PoolInUse(f"{self.path} is used by the processes {pids}: end them first")
        if list_names(self._owners):
            raise PoolInUse(f"{self.path} holds what killed processes left: run webserv-rt gc first")


def _absolute(path: Path) -> Path:
    return path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()


def _refuse_what_is_there(path: Path, image: PoolImage) -> None:
    if image.exists():
        raise PoolExists(f"{image.path} is there already: it belongs to a pool, open that or destroy it")
    if not path.exists():
        return
    if not path.is_dir():
        raise PoolExists(f"{path} is no directory: choose another path")
    if (path / POOL_FILE).exists():
        raise PoolExists(f"{path} is a pool already: open it or destroy it")
    # An interrupted creation may have left the pool's own directories.
    others = sorted({entry.name for entry in path.iterdir()} - {*PARTS, "lost+found"})
    if others or any((path / part).exists() and any((path / part).iterdir()) for part in PARTS):
        raise PoolExists(
            f"{path} is not empty ({', '.join(others[:3]) or 'parts of a pool'}): choose another path"
        )


def _fill_directory(path: Path, identity: PoolFile) -> None:
    """Make PATH a pool; it is one from the moment that the last file has its name."""
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    for part in PARTS:
        (path / part).mkdir(mode=0o700, exist_ok=True)
    with Descriptor(open_nameless(path)) as file:
        os.write(file.fileno(), identity.to_bytes())
        link_nameless(file.fileno(), path / POOL_FILE)


def _read_identity(path: Path) -> PoolFile:
    try:
        return PoolFile.read(path / POOL_FILE)
    except (FileNotFoundError, NotADirectoryError):
        raise PoolNotFound(
            f"there is no pool at {path} (no {POOL_FILE} in it, no image {path.name}.img beside it):"
            " create one (webserv-rt pool create)"
        ) from None
    except PermissionError:
        raise PoolNotFound(f"the pool at {path} is for root only: run as root") from None
