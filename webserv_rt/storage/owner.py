"""Owners: the directories in a pool that live as long as the process that made them (invariant 3).

`owners/ID/lock` is locked (flock) by the owner's process from before the directory has its name until its
end, however that comes. Whoever can take the lock has found a dead owner, and keeps others off by holding it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from webserv_rt.kernel.descriptor import Descriptor, Lock, open_directory
from webserv_rt.kernel.remove import remove_tree

_LOCK = "lock"
_UNFINISHED = ".new-"
_LOCK_WAIT_S = 1.0


class OwnerDirectory:
    """A directory that this process owns, or took over from a dead owner; the lock is held until `close()`.

    The end of a `with` block removes a directory of one's own with all in it. One taken over is only let go
    of: it is for whoever took it to end what lives in it, then to call `remove()`.
    """

    def __init__(
        self, owners: Descriptor, path: Path, directory: Descriptor, lock: Lock, *, is_own: bool
    ) -> None:
        self.id = path.name
        self.path = path
        self.directory = directory
        self._owners = owners
        self._lock = lock
        self._is_own = is_own

    def remove(self) -> None:
        """Remove the directory and all in it, the lock last, and let go of it."""
        for name in list_names(self.directory):
            if name != _LOCK:
                remove_tree(self.directory.fileno(), name)
        remove_tree(self._owners.fileno(), self.id)
        self.close()

    def close(self) -> None:
        """Let go of the lock; what is still in the directory is then for the collector."""
        self.directory.close()
        self._lock.close()

    def __enter__(self) -> OwnerDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_own:
                self.remove()
        finally:
            self.close()


def create_owner(owners: Descriptor, owners_path: Path) -> OwnerDirectory:
    """Make the directory of a new owner, which gets its name when its lock is held."""
    identifier = secrets.token_hex(6)
    unfinished = f"{_UNFINISHED}{identifier}"
    with _creation_lock(owners, fcntl.LOCK_SH):
        os.mkdir(unfinished, 0o700, dir_fd=owners.fileno())
        try:
            directory = open_directory(unfinished, dir_fd=owners.fileno())
            lock = _open_lock(owners, unfinished, os.O_CREAT | os.O_EXCL)
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
            os.write(lock.fileno(), f"{os.getpid()} {_pid_namespace()}\n".encode())
            os.rename(unfinished, identifier, src_dir_fd=owners.fileno(), dst_dir_fd=owners.fileno())
        except BaseException:
            remove_tree(owners.fileno(), unfinished)
            raise
    return OwnerDirectory(owners, owners_path / identifier, directory, lock, is_own=True)


def take_dead_owners(owners: Descriptor, owners_path: Path) -> list[OwnerDirectory]:
    """Return the directories whose owner is gone, locked for the caller, who removes or closes each.

    What was left half made or half removed holds nothing but files, and is removed at once.
    """
    taken = []
    with _creation_lock(owners, fcntl.LOCK_EX):
        for identifier in sorted(list_names(owners)):
            if _is_unfinished(owners, identifier):
                remove_tree(owners.fileno(), identifier)
            elif owner := _take(owners, owners_path / identifier):
                taken.append(owner)
    return taken


def living_owners(owners: Descriptor) -> list[int]:
    """Return the process ids, as their own pid namespace numbers them, of the owners that live.

    To be called under `no_new_owners`: a collector would take a lock tried here for that of a living owner.
    """
    pids = []
    for identifier in list_names(owners):
        with suppress(FileNotFoundError), _open_lock(owners, identifier) as lock:
            if not _try_lock(lock):
                pids.append(_recorded(lock)[0])
    return pids


def list_names(directory: Descriptor) -> list[str]:
    """Return the names in DIRECTORY now.

    By a description of one's own: other threads would move the position of a shared one, and btrfs shows no
    names that are newer than the last time it was opened or rewound.
    """
    with open_directory(".", dir_fd=directory.fileno()) as own:
        return os.listdir(own.fileno())


def _take(owners: Descriptor, path: Path) -> OwnerDirectory | None:
    try:
        lock = _open_lock(owners, path.name)
    except FileNotFoundError:  # its owner removed it meanwhile
        return None
    is_locked = _try_lock(lock) or (_has_ended(lock) and _lock_soon(lock))
    # A lock file that was removed meanwhile can be locked too.
    if not is_locked or os.fstat(lock.fileno()).st_nlink == 0:
        lock.close()
        return None
    return OwnerDirectory(owners, path, open_directory(path.name, dir_fd=owners.fileno()), lock, is_own=False)


def _is_unfinished(owners: Descriptor, identifier: str) -> bool:
    """Tell whether a directory never got its name, or lost its lock in a removal; nobody makes one now."""
    if identifier.startswith(_UNFINISHED):
        return True
    try:
        os.stat(f"{identifier}/{_LOCK}", dir_fd=owners.fileno(), follow_symlinks=False)
    except FileNotFoundError:
        return True
    return False


def _open_lock(owners: Descriptor, identifier: str, flags: int = 0) -> Lock:
    flags |= os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    return Lock(os.open(f"{identifier}/{_LOCK}", flags, 0o600, dir_fd=owners.fileno()))


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _recorded(lock: Descriptor) -> tuple[int, int]:
    """Return the process id of the owner and the pid namespace that numbers it so."""
    pid, namespace = os.pread(lock.fileno(), 64, 0).split() or (b"0", b"0")
    return int(pid), int(namespace)


def _has_ended(lock: Descriptor) -> bool:
    pid, namespace = _recorded(lock)
    return namespace == _pid_namespace() and not Path(f"/proc/{pid}").exists()


def _lock_soon(lock: Descriptor) -> bool:
    """Wait for the lock of an owner that has ended.

    A process that it had just cloned has copies of all its descriptors until it executes its program.
    """
    deadline = time.monotonic() + _LOCK_WAIT_S
    while not _try_lock(lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _try_lock(lock: Descriptor) -> bool:
    try:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def no_new_owners(owners: Descriptor) -> AbstractContextManager[None]:
    """Keep anybody from making or collecting owners for the length of a `with` block."""
    return _creation_lock(owners, fcntl.LOCK_EX)


@contextmanager
def _creation_lock(owners: Descriptor, kind: int) -> Iterator[None]:
    """Lock the directory of owners: shared while one is made, exclusively to see which were left unfinished.

    By a description of one's own, since a shared descriptor would share the lock with other threads.
    """
    with Lock(open_directory(".", dir_fd=owners.fileno()).release()) as lock:
        fcntl.flock(lock.fileno(), kind)
        yield
