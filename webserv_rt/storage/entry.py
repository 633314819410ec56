"""One entry of a tree: everything about a name that a base promises to keep."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Kind = Literal["directory", "file", "symlink", "character", "block", "fifo", "socket"]

ROOT = "."


class Entry(NamedTuple):
    """A name in a tree, as the manifest lists it.

    `path` is relative to the root, which itself is "."; names that are not UTF-8 carry surrogate escapes.
    `mtime_s` is in whole seconds, rounded down: tar and image layers carry no more, and a digest must not
    depend on where a tree came from. `hard_link` is the first path, in the order of the scan, of the same
    inode. `device` is "MAJOR:MINOR". `xattrs` are (name, value in hex), sorted by name.
    """

    path: str
    kind: Kind
    mode: int
    uid: int
    gid: int
    mtime_s: int
    size: int = 0
    sha256: str = ""
    target: str = ""
    hard_link: str = ""
    device: str = ""
    xattrs: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the entry as its line of the manifest has it; what is empty is left out."""
        line: dict[str, Any] = {
            "path": self.path,
            "kind": self.kind,
            "mode": f"{self.mode:04o}",
            "uid": self.uid,
            "gid": self.gid,
            "mtime": self.mtime_s,
        }
        if self.kind == "file":
            line["size"] = self.size
            line["sha256"] = self.sha256
        for name in ("target", "hard_link", "device"):
            if value := getattr(self, name):
                line[name] = value
        if self.xattrs:
            line["xattrs"] = dict(self.xattrs)
        return line

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Entry:
        """Return the entry that `to_json` wrote as LINE. Raises KeyError, ValueError or TypeError."""
        return cls(
            path=line["path"],
            kind=line["kind"],
            mode=int(line["mode"], 8),
            uid=line["uid"],
            gid=line["gid"],
            mtime_s=line["mtime"],
            size=line.get("size", 0),
            sha256=line.get("sha256", ""),
            target=line.get("target", ""),
            hard_link=line.get("hard_link", ""),
            device=line.get("device", ""),
            xattrs=tuple(line.get("xattrs", {}).items()),
        )
