"""Find a user's numbers in the etc/passwd and etc/group of a root filesystem that is not trusted."""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from webserv_rt.errors import WebservError

PASSWD = "etc/passwd"
GROUP = "etc/group"

_MAX_ID = 2**32 - 2  # (uid_t) -1 means "leave as it is" to the kernel
_MAX_FILE_BYTES = 16 << 20
_MAX_SYMLINKS = 40  # as in the kernel's own path walk


@dataclass(frozen=True)
class User:
    """The identity that a process takes on, in the ids of the root filesystem (not yet mapped).

    `groups` is the list for setgroups(2), the primary group first.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


@dataclass(frozen=True)
class _Account:
    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True)
class _Group:
    name: str
    gid: int
    members: tuple[str, ...]


def resolve_user(root: int | Path, user: str) -> User:
    """Return the numbers of USER ("NAME", "UID", either with ":GROUP" or ":GID") as ROOT knows it.

    ROOT is a directory or a descriptor of one, which stays open and the caller's. The rules are those of
    container engines: a number needs no entry (its group is then 0, its home /); a named group replaces the
    primary group and all supplementary ones. Raises `WebservError` when a name is not known.
    """
    user_part, _, group_part = user.partition(":")
    if not user_part:
        raise WebservError(f'user "{user}": write NAME, UID, NAME:GROUP or UID:GID')
    with _opened_root(root) as root_fd:
        account = _find_account(root_fd, user_part)
        groups = list(_read_groups(root_fd))
        if group_part:
            gid = _find_gid(groups, group_part)
            return User(account.uid, gid, (gid,), account.home)
    supplementary = [group.gid for group in groups if account.name and account.name in group.members]
    return User(account.uid, account.gid, tuple(dict.fromkeys([account.gid, *supplementary])), account.home)


def _find_account(root_fd: int, user: str) -> _Account:
    wanted = _number(user)
    for account in _read_accounts(root_fd):
        if account.name == user or account.uid == wanted:
            return account
    if wanted is None:
        raise WebservError(
            f'user "{user}": not in {PASSWD} of the root filesystem; give its number, or add it'
        )
    return _Account(name="", uid=wanted, gid=0, home="/")


def _find_gid(groups: list[_Group], name: str) -> int:
    wanted = _number(name)
    for group in groups:
        if group.name == name:
            return group.gid
    if wanted is None:
        raise WebservError(
            f'group "{name}": not in {GROUP} of the root filesystem; give its number, or add it'
        )
    return wanted


def _number(text: str) -> int | None:
    if not re.fullmatch(r"[0-9]+", text):
        return None
    if len(text) > 10 or int(text) > _MAX_ID:
        raise WebservError(f'user or group "{text}": a number must be at most {_MAX_ID}')
    return int(text)


def _read_accounts(root_fd: int) -> Iterator[_Account]:
    for fields in _read_entries(root_fd, PASSWD, n_fields=7):
        if _is_id(fields[2]) and _is_id(fields[3]):
            yield _Account(fields[0], int(fields[2]), int(fields[3]), home=fields[5] or "/")


def _read_groups(root_fd: int) -> Iterator[_Group]:
    for fields in _read_entries(root_fd, GROUP, n_fields=4):
        if _is_id(fields[2]):
            yield _Group(fields[0], int(fields[2]), tuple(fields[3].split(",")))


def _is_id(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,10}", text) is not None and int(text) <= _MAX_ID


def _read_entries(root_fd: int, path: str, n_fields: int) -> Iterator[list[str]]:
    """Yield the fields of each well-formed line; others are passed over, as the C library does."""
    for line in _read_file(root_fd, path).splitlines():
        fields = line.strip().split(":")
        if len(fields) == n_fields and fields[0] and fields[0][0] not in "#+-":
            yield fields


def _read_file(root_fd: int, path: str) -> str:
    try:
        with _opened_inside(root_fd, path) as fd:
            status = os.fstat(fd)
            # Opening a FIFO would hang, a device could do anything.
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
                raise WebservError(f"{path} of the root filesystem is not a regular file of sane size")
            with Path(f"/proc/self/fd/{fd}").open("rb") as file:
                return file.read(_MAX_FILE_BYTES).decode(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise WebservError(f"{path} of the root filesystem cannot be read: {error.strerror}") from error


@contextmanager
def _opened_root(root: int | Path) -> Iterator[int]:
    if isinstance(root, int):
        yield root
        return
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _opened_inside(root_fd: int, path: str) -> Iterator[int]:
    """Open PATH as if ROOT_FD were "/" (O_PATH): symlinks are followed by hand and cannot lead out.

    Python has no openat2(RESOLVE_IN_ROOT), and string joining would follow links to the host's files.
    """
    walked: list[int] = []  # descriptors from the root (not contained) down to where the walk stands
    parts = deque(path.split("/"))
    n_symlinks = 0
    try:
        while parts:
            part = parts.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                if walked:
                    os.close(walked.pop())
                continue
            here = walked[-1] if walked else root_fd
            walked.append(os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here))
            if not stat.S_ISLNK(os.fstat(walked[-1]).st_mode):
                continue
            n_symlinks += 1
            if n_symlinks > _MAX_SYMLINKS:
                raise WebservError(f"{path} of the root filesystem: too many symbolic links")
            target = os.readlink("", dir_fd=walked[-1])
            os.close(walked.pop())
            if target.startswith("/"):
                _close_all(walked)
            parts.extendleft(reversed(target.split("/")))
        yield walked[-1] if walked else root_fd
    finally:
        _close_all(walked)


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())
