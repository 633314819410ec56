"""Extended attributes: which of them belong to a tree, and POSIX ACLs as tar writes them.

Kept: `user.*`, `trusted.*`, `security.capability` and both POSIX ACLs. Left behind: what a host's own
policy or filesystem gives a file (security.selinux, security.ima, btrfs.*): it means nothing elsewhere, and
would make the digest of a tree depend on the host. Refused: overlayfs's own, which would make the kernel
hide or redirect files of an instance.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from webserv_rt.storage.errors import ImportRefused, shown

ACCESS_ACL = "system.posix_acl_access"
DEFAULT_ACL = "system.posix_acl_default"

_KEPT = frozenset(("security.capability", ACCESS_ACL, DEFAULT_ACL))
# XFS shows its ACLs a second time under this name.
_XFS_ACL = "trusted.SGI_ACL_"
_OVERLAY = ("trusted.overlay.", "user.overlay.")

_ACL_VERSION = 2
_NO_ID = 0xFFFFFFFF
# (kind, has an id): the tag of linux/posix_acl.h; the kernel wants entries in the order of the tags.
_ACL_TAGS = {
    ("user", False): 0x01,
    ("user", True): 0x02,
    ("group", False): 0x04,
    ("group", True): 0x08,
    ("mask", False): 0x10,
    ("other", False): 0x20,
}


def is_kept(name: str) -> bool:
    """Tell whether the attribute NAME is part of a tree."""
    return name in _KEPT or (name.startswith(("user.", "trusted.")) and not name.startswith(_XFS_ACL))


def refuse_overlay(path: str, names: Iterable[str]) -> None:
    """Raise `ImportRefused` when NAMES, the attributes of PATH, hold one of overlayfs's own."""
    for name in names:
        if name.startswith(_OVERLAY):
            raise ImportRefused(
                f"{shown(path)} carries overlayfs's own attribute {name}: it comes from a layer directory;"
                " import the merged tree instead"
            )


def read(dir_fd: int, name: str) -> dict[str, bytes]:
    """Return the attributes, as far as they are kept, of NAME in DIR_FD; a symbolic link's are its own."""
    path = f"/proc/self/fd/{dir_fd}/{name}"
    names = os.listxattr(path, follow_symlinks=False)
    return {
        attribute: os.getxattr(path, attribute, follow_symlinks=False)
        for attribute in sorted(names)
        if is_kept(attribute)
    }


def write(dir_fd: int, name: str, values: dict[str, bytes]) -> None:
    """Set the attributes VALUES on NAME in DIR_FD; a symbolic link's are its own."""
    path = f"/proc/self/fd/{dir_fd}/{name}"
    for attribute, value in values.items():
        os.setxattr(path, attribute, value, follow_symlinks=False)


def acl_from_text(text: str) -> bytes:
    """Return the attribute value of the ACL that tar wrote as TEXT ("user::rw-,user:33:r--,...").

    Ids must be numbers: names are those of the machine that wrote the archive and mean nothing here. Raises
    ValueError.
    """
    entries = []
    for item in text.replace("\n", ",").split(","):
        if item := item.split("#")[0].strip():
            entries.append(_acl_entry(item))
    entries.sort(key=lambda entry: (entry[0], entry[2]))  # by tag and id, as setfacl has them
    return struct.pack("<I", _ACL_VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _acl_entry(item: str) -> tuple[int, int, int]:
    fields = item.split(":")
    if len(fields) == 2 and fields[0] in ("mask", "other"):
        fields.insert(1, "")  # old star writes "mask:rwx"
    kind, qualifier, permissions = fields[:3]
    if len(fields) == 4 and qualifier:
        qualifier = fields[3]  # bsdtar and star: "user:NAME:rwx:ID"
    tag = _ACL_TAGS.get((kind, bool(qualifier)))
    if tag is None or len(fields) > 4 or set(permissions) - set("rwx-"):
        raise ValueError(f"{item!r} is no entry of an ACL")
    if qualifier and not qualifier.isdecimal():
        raise ValueError(
            f"the ACL {item!r} is for a name; GNU tar keeps its number with --xattrs --xattrs-include='*'"
            " and without --acls"
        )
    bits = sum(bit for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if letter in permissions)
    return tag, bits, int(qualifier) if qualifier else _NO_ID
