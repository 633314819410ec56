"""Detached mounts: clones of directories and overlays that are in no mount table (native/mount.h)."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from webserv_rt._native import ffi, lib
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.error import KernelError, check, new_error


def clone_mount(
    directory: Descriptor,
    path: str = "",
    *,
    userns: Descriptor | None = None,
    read_only: bool = False,
    no_dev: bool = True,
    no_suid: bool = False,
    recursive: bool = False,
) -> Descriptor:
    """Clone the mount of `path` below `directory`, idmapped by `userns` if given."""
    flags = (
        (lib.WSRT_MOUNT_READ_ONLY if read_only else 0)
        | (lib.WSRT_MOUNT_NO_DEV if no_dev else 0)
        | (lib.WSRT_MOUNT_NO_SUID if no_suid else 0)
        | (lib.WSRT_MOUNT_RECURSIVE if recursive else 0)
    )
    error = new_error()
    userns_fd = -1 if userns is None else userns.fileno()
    fd = lib.wsrt_mount_clone(directory.fileno(), path.encode(), userns_fd, flags, error)
    return Descriptor(check(fd, error))


def mount_overlay(
    lowers: Sequence[Descriptor], upper: Descriptor, work: Descriptor, *, by_path: bool, volatile: bool = True
) -> Descriptor:
    """Mount an overlay of `lowers` (topmost first), detached; with `by_path` each lower mount is used up."""
    lower_fds = ffi.new("int[]", [lower.fileno() for lower in lowers])
    layers = ffi.new(
        "struct wsrt_overlay *",
        {
            "lower_fds": lower_fds,
            "n_lowers": len(lowers),
            "upper_fd": upper.fileno(),
            "work_fd": work.fileno(),
            "is_volatile": volatile,
            "by_path": by_path,
        },
    )
    error = new_error()
    return Descriptor(check(lib.wsrt_mount_overlay(layers, error), error))


def takes_detached_layers(lower: Descriptor, upper: Descriptor, work: Descriptor) -> bool:
    """Try whether this kernel mounts overlays of detached layers (6.15 and later do)."""
    try:
        with clone_mount(lower, read_only=True) as detached:
            mount_overlay([detached], upper, work, by_path=False).close()
    except KernelError as error:
        # Before 6.5 overlays take strings alone.
        if error.errno in (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP):
            return False
        raise
    return True
