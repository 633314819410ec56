"""What a filesystem is and can do, asked of a descriptor on it."""

from __future__ import annotations

import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .descriptor import Descriptor
from .nameless import open_nameless

_FICLONE: Final = 0x40049409
_REFUSALS: Final = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EISDIR, errno.ENOSYS)


@dataclass(frozen=True)
class Filesystem:
    """A mounted filesystem: its type ("xfs"), and the options of the mount and of the filesystem."""

    type: str
    options: frozenset[str]

    @property
    def has_project_quota(self) -> bool:
        """Whether project quotas are switched on and enforced."""
        return not self.options.isdisjoint({"prjquota", "pquota"})


def filesystem_of(directory: Descriptor) -> Filesystem:
    """Return the filesystem DIRECTORY is on.

    Found by mount id: the device number that stat gives for a btrfs subvolume is in no mount table.
    """
    lines = Path(f"/proc/self/fdinfo/{directory.fileno()}").read_text().splitlines()
    mount_id = next(line.split()[1] for line in lines if line.startswith("mnt_id:"))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[0] == mount_id:
            of_mount, (kind, _, of_filesystem) = fields[5], fields[-3:]
            return Filesystem(kind, frozenset([*of_mount.split(","), *of_filesystem.split(",")]))
    raise OSError(errno.ENOENT, "the mount is not in this mount namespace")


def can_share_blocks(directory: Path) -> bool:
    """Tell whether files in DIRECTORY can share blocks, by having two nameless ones do it."""
    try:
        with Descriptor(open_nameless(directory)) as source, Descriptor(open_nameless(directory)) as clone:
            os.write(source.fileno(), bytes(4096))
            fcntl.ioctl(clone.fileno(), _FICLONE, source.fileno())
    except OSError as error:
        if error.errno in _REFUSALS:
            return False
        raise
    return True
