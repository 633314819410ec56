"""What an instance has changed since its start state: read from its upper layer and its data clones."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from webserv_rt.incarnation import Incarnation
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.storage.walk import Found, walk

# Made by the kernel or the runtime for every instance, not by what runs in it.
_OPAQUE: Final = "trusted.overlay.opaque"
_CHUNK_BYTES: Final = 1 << 20

ChangeKind = Literal["added", "modified", "deleted"]


@dataclass(frozen=True)
class Changes:
    """Absolute paths as the instance sees them, each list sorted; directories end with "/"."""

    added: tuple[str, ...]
    modified: tuple[str, ...]
    deleted: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.deleted)


def find_changes(incarnation: Incarnation) -> Changes:
    """Compare a frozen instance with its start state.

    A file counts as modified when its content, mode or owner differs; a changed time alone does not count.
    """
    found: set[tuple[ChangeKind, str]] = set()
    template = incarnation.template
    lowers = [template.frame, template.root]
    found.update(_upper_changes(incarnation.layers.upper, lowers, incarnation.root_id))
    for index, source in enumerate(template.data):
        with open_directory(f"data-{index}", dir_fd=incarnation.layers.directory.fileno()) as clone:
            found.update(_clone_changes(clone, source.directory, source.target))
    return Changes(*(tuple(sorted(path for kind, path in found if kind == wanted)) for wanted in ("added", "modified", "deleted")))


def _upper_changes(upper: Descriptor, lowers: list[Descriptor], root_id: int) -> Iterator[tuple[ChangeKind, str]]:
    for found in walk(upper.fileno()):
        if found.path == ".":
            continue
        before = _lookup(lowers, found.path)
        shown = _shown("", found)
        if _is_whiteout(found.status):
            if before is not None:
                yield "deleted", shown + ("/" if stat.S_ISDIR(before[1].st_mode) else "")
        elif before is None:
            yield "added", shown
        elif stat.S_ISDIR(found.status.st_mode) and stat.S_ISDIR(before[1].st_mode):
            if _look(found.status, root_id) != _look(before[1], 0):
                yield "modified", shown
            if _is_opaque(found.dir_fd):
                yield from _hidden(found, before[0])
        elif not _same(found, before, root_id):
            yield "modified", shown


def _clone_changes(clone: Descriptor, source: Descriptor, target: str) -> Iterator[tuple[ChangeKind, str]]:
    seen = set()
    for found in walk(clone.fileno()):
        seen.add(found.path)
        before = _lookup([source], found.path)
        if before is None:
            yield "added", _shown(target, found)
        elif not _same(found, before, 0):
            yield "modified", _shown(target, found)
    for found in walk(source.fileno()):
        if found.path not in seen:
            yield "deleted", _shown(target, found)


def _hidden(found: Found, lower: Descriptor) -> Iterator[tuple[ChangeKind, str]]:
    """Yield what an opaque directory hides of the layer below and does not have anew."""
    with open_directory(found.path, dir_fd=lower.fileno()) as directory:
        for below in walk(directory.fileno()):
            if below.path == ".":
                continue
            try:
                os.stat(below.path, dir_fd=found.dir_fd, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                yield "deleted", _shown("/" + found.path, below)


def _lookup(lowers: list[Descriptor], path: str) -> tuple[Descriptor, os.stat_result] | None:
    for lower in lowers:
        try:
            return lower, os.stat(path, dir_fd=lower.fileno(), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def _look(status: os.stat_result, root_id: int) -> tuple[int, int, int]:
    return status.st_mode, status.st_uid - root_id, status.st_gid - root_id


def _same(found: Found, before: tuple[Descriptor, os.stat_result], root_id: int) -> bool:
    lower, status = before
    if _look(found.status, root_id) != _look(status, 0):
        return False
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(found.name, dir_fd=found.dir_fd) == os.readlink(found.path, dir_fd=lower.fileno())
    if not stat.S_ISREG(status.st_mode):
        return found.status.st_rdev == status.st_rdev
    if found.status.st_size != status.st_size:
        return False
    return _same_content(found, lower)


def _same_content(found: Found, lower: Descriptor) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOATIME | os.O_NONBLOCK
    with (
        open(os.open(found.name, flags, dir_fd=found.dir_fd), "rb", buffering=0) as ours,
        open(os.open(found.path, flags, dir_fd=lower.fileno()), "rb", buffering=0) as theirs,
    ):
        while True:
            chunk = ours.read(_CHUNK_BYTES)
            if chunk != theirs.read(_CHUNK_BYTES):
                return False
            if not chunk:
                return True


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(dir_fd: int) -> bool:
    try:
        return os.getxattr(dir_fd, _OPAQUE) == b"y"
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return False
        raise


def _shown(prefix: str, found: Found) -> str:
    path = prefix if found.path == "." else f"{prefix}/{found.path}"
    return path + "/" if stat.S_ISDIR(found.status.st_mode) else path
