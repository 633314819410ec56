"""What an instance has changed since its start state: read from its upper layer and its data clones."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from webserv_rt.incarnation import Incarnation
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.storage.beneath import Beneath
from webserv_rt.storage.entry import ROOT
from webserv_rt.storage.walk import Found, walk

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
    What is nested so deeply that no path can name it (PATH_MAX) is left out.
    """
    found: set[tuple[ChangeKind, str]] = set()
    template = incarnation.template
    with Beneath(template.frame.fileno()) as frame, Beneath(template.root.fileno()) as root:
        found.update(_upper_changes(incarnation.layers.upper, [frame, root], incarnation.root_id))
    for index, source in enumerate(template.data):
        with open_directory(f"data-{index}", dir_fd=incarnation.layers.directory.fileno()) as clone:
            found.update(_clone_changes(clone, source.directory, source.target))
    return Changes(
        *(
            tuple(sorted(path for kind, path in found if kind == wanted))
            for wanted in ("added", "modified", "deleted")
        )
    )


def _upper_changes(
    upper: Descriptor, lowers: list[Beneath], root_id: int
) -> Iterator[tuple[ChangeKind, str]]:
    for found in walk(upper.fileno(), skip_too_deep=True):
        if found.path == ".":
            continue
        before = _lookup(lowers, found.path)
        if before is None:
            if not _is_whiteout(found.status):
                yield "added", _shown("", found)
            continue
        was_directory = stat.S_ISDIR(before.status.st_mode)
        if _is_whiteout(found.status):
            yield "deleted", f"/{found.path}{'/' if was_directory else ''}"
        elif not _same(found, before, root_id):
            yield "modified", _shown("", found)
        if was_directory and (not stat.S_ISDIR(found.status.st_mode) or _is_opaque(found.dir_fd)):
            yield from _hidden(found, lowers)


def _hidden(found: Found, lowers: list[Beneath]) -> Iterator[tuple[ChangeKind, str]]:
    """Yield what was below a directory that is gone or opaque now, and is not there anew."""
    is_directory = stat.S_ISDIR(found.status.st_mode)
    with Beneath(found.dir_fd) as now:
        for lower in lowers:
            try:
                directory_fd = lower.directory(found.path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for below in walk(directory_fd):
                if below.path != "." and not (is_directory and _lookup([now], below.path)):
                    yield "deleted", _shown(f"/{found.path}", below)


def _clone_changes(clone: Descriptor, source: Descriptor, target: str) -> Iterator[tuple[ChangeKind, str]]:
    seen = set()
    with Beneath(source.fileno()) as start:
        for found in walk(clone.fileno(), skip_too_deep=True):
            seen.add(found.path)
            before = _lookup([start], found.path)
            if before is None:
                yield "added", _shown(target, found)
            elif not _same(found, before, 0):
                yield "modified", _shown(target, found)
    for found in walk(source.fileno()):
        if found.path not in seen:
            yield "deleted", _shown(target, found)


class _Before(NamedTuple):
    """A path as it was: `name` in the directory `dir_fd`, which is borrowed until the next lookup."""

    dir_fd: int
    name: str
    status: os.stat_result


def _lookup(layers: list[Beneath], path: str) -> _Before | None:
    # Never through a symbolic link: the instance chooses the paths, and a link could lead to the host.
    for layer in layers:
        try:
            dir_fd, name = (layer.root_fd, ".") if path == ROOT else layer.parent(path)
            return _Before(dir_fd, name, os.stat(name, dir_fd=dir_fd, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def _look(status: os.stat_result, root_id: int) -> tuple[int, int, int]:
    return status.st_mode, status.st_uid - root_id, status.st_gid - root_id


def _same(found: Found, before: _Before, root_id: int) -> bool:
    if _look(found.status, root_id) != _look(before.status, 0):
        return False
    if stat.S_ISLNK(before.status.st_mode):
        return os.readlink(found.name, dir_fd=found.dir_fd) == os.readlink(before.name, dir_fd=before.dir_fd)
    if not stat.S_ISREG(before.status.st_mode):
        return found.status.st_rdev == before.status.st_rdev
    if found.status.st_size != before.status.st_size:
        return False
    return _same_content(found, before)


def _same_content(found: Found, before: _Before) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOATIME | os.O_NONBLOCK
    with (
        open(os.open(found.name, flags, dir_fd=found.dir_fd), "rb", buffering=0) as ours,
        open(os.open(before.name, flags, dir_fd=before.dir_fd), "rb", buffering=0) as theirs,
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
