"""btrfs subvolumes: on that filesystem a tree of any size is cloned in one step."""

from __future__ import annotations

import os

from webserv_rt._native import lib

from .error import check, new_error


def create_subvolume(parent_fd: int, name: str) -> None:
    """Create the empty subvolume NAME in PARENT_FD; EOPNOTSUPP on other filesystems."""
    error = new_error()
    check(lib.wsrt_create_subvolume(parent_fd, os.fsencode(name), error), error)


def snapshot_subvolume(source_fd: int, dest_parent_fd: int, name: str) -> None:
    """Snapshot the subvolume SOURCE_FD as the writable subvolume NAME; EINVAL when it is none."""
    error = new_error()
    check(lib.wsrt_snapshot_subvolume(source_fd, dest_parent_fd, os.fsencode(name), error), error)
