"""Project quotas: how much one directory tree may hold."""

from __future__ import annotations

from webserv_rt._native import lib

from .error import check, new_error


def set_project_quota(dir_fd: int, project_id: int, limit_bytes: int) -> None:
    """Limit what the empty directory DIR_FD may come to hold to LIMIT_BYTES (0: no limit).

    All that is made in it inherits PROJECT_ID (not 0). Needs a pool whose status says
    `has_project_quota`; otherwise an error (ENOTSUP, ESRCH, ENOSYS).
    """
    error = new_error()
    check(lib.wsrt_set_project_quota(dir_fd, project_id, limit_bytes, error), error)
