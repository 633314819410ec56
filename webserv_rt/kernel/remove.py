"""Removal of trees that a hostile process may have laid out."""

from __future__ import annotations

import os

from webserv_rt._native import lib

from .error import check, new_error


def remove_tree(parent_fd: int, name: str) -> None:
    """Remove NAME in PARENT_FD, whatever it is, with everything below it; fine when it is not there.

    No symlink is followed and no mount is entered (EXDEV names it). Safe to call again after a failure.
    """
    error = new_error()
    check(lib.wsrt_remove_tree(parent_fd, os.fsencode(name), error), error)
