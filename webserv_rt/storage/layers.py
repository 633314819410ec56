"""The writable side of one incarnation: upper and work directory, data clones and logs, in one directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from webserv_rt.errors import WebservError
from webserv_rt.kernel.clone import clone_tree
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.kernel.quota import set_project_quota
from webserv_rt.kernel.remove import remove_tree

IDS_PER_PROJECT = 65536


class WritableLayers:
    """Directories for one incarnation below `parent`; they hold nothing at first, the data clones excepted.

    upper/ and work/ belong to the instance's ids on disk (the kernel takes no idmapped upper); the clones
    keep the base's ids and are idmapped when they are attached.
    """

    def __init__(
        self,
        parent: Descriptor,
        name: str,
        root_id: int,
        base_root: os.stat_result,
        storage_limit_bytes: int | None = None,
    ) -> None:
        self.parent = parent
        self.name = name
        os.mkdir(name, 0o700, dir_fd=parent.fileno())
        try:
            self.directory = open_directory(name, dir_fd=parent.fileno())
            if storage_limit_bytes is not None:
                # Every range of ids has a number of its own on this machine, which serves as the project's.
                set_project_quota(self.directory.fileno(), root_id // IDS_PER_PROJECT, storage_limit_bytes)
            for part in ("upper", "work", "logs"):
                os.mkdir(part, 0o700, dir_fd=self.directory.fileno())
            self.upper = open_directory("upper", dir_fd=self.directory.fileno())
            self.work = open_directory("work", dir_fd=self.directory.fileno())
            self._give_away(root_id, base_root)
        except BaseException:
            remove_tree(parent.fileno(), name)
            raise

    def _give_away(self, root_id: int, base_root: os.stat_result) -> None:
        # The upper's root is what the instance sees as "/": it must look like the base's.
        os.fchown(self.upper.fileno(), root_id + base_root.st_uid, root_id + base_root.st_gid)
        os.fchmod(self.upper.fileno(), stat.S_IMODE(base_root.st_mode))
        os.utime(self.upper.fileno(), ns=(base_root.st_atime_ns, base_root.st_mtime_ns))
        os.fchown(self.work.fileno(), root_id, root_id)

    def clone_data(self, source: Descriptor, index: int) -> Descriptor:
        """Clone a data directory by reflink; return the clone."""
        name = f"data-{index}"
        clone_tree(source.fileno(), self.directory.fileno(), name)
        return open_directory(name, dir_fd=self.directory.fileno())

    def open_log(self, name: str, owner: int) -> Descriptor:
        """Make a log, open it for appending; `owner`, a user of the host, may open it by /dev/stdout too."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        log = Descriptor(os.open(f"logs/{name}.log", flags, 0o600, dir_fd=self.directory.fileno()))
        os.fchown(log.fileno(), owner, -1)
        return log

    def log_names(self) -> list[str]:
        """Return the names of the logs, the runtime's own `init` included."""
        return sorted(entry.removesuffix(".log") for entry in os.listdir(self.path / "logs"))

    def read_log(self, name: str, max_bytes: int) -> str:
        """Return the last `max_bytes` of a log."""
        with open(self.path / "logs" / f"{name}.log", "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read(max_bytes).decode("utf-8", "replace")

    @property
    def path(self) -> Path:
        """The directory by a path that stays right as long as this object lives."""
        return Path(f"/proc/self/fd/{self.directory.fileno()}")

    def close(self) -> None:
        """Let go of the descriptors; the directory stays."""
        for descriptor in (self.upper, self.work, self.directory):
            descriptor.close()

    def remove(self) -> None:
        """Delete the directory with all in it."""
        self.close()
        remove_tree(self.parent.fileno(), self.name)


def make_frame(
    parent: Descriptor, name: str, base_root: Descriptor, hosts: Sequence[str], targets: Sequence[str]
) -> Descriptor:
    """Make the frame: a read-only layer over the base that all instances of a site share.

    It holds what the runtime adds to every root filesystem: /etc/hosts with the canonical names,
    /etc/hostname, and the mount points (`targets`, absolute). Directories that the base has too look as they
    do there.
    """
    os.mkdir(name, 0o755, dir_fd=parent.fileno())
    frame = open_directory(name, dir_fd=parent.fileno())
    for target in ("/etc", "/proc", "/sys", "/dev", *targets):
        _make_like_base(base_root, frame, target)
    aliases = " ".join(hosts)
    _write(frame, "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n127.0.0.1 {aliases}\n")
    _write(frame, "etc/hostname", f"{hosts[0]}\n")
    _copy_look(os.fstat(base_root.fileno()), frame.fileno())
    return frame


def _make_like_base(base_root: Descriptor, frame: Descriptor, target: str) -> None:
    path = ""
    for part in target.strip("/").split("/"):
        path = f"{path}/{part}" if path else part
        in_base = _look(base_root, path)
        if in_base is not None and not stat.S_ISDIR(in_base.st_mode):
            raise WebservError(f"/{path} of the base is not a directory: name the real path of {target}")
        try:
            os.mkdir(path, 0o755, dir_fd=frame.fileno())
        except FileExistsError:
            continue
        with open_directory(path, dir_fd=frame.fileno()) as made:
            if in_base is not None:
                _copy_look(in_base, made.fileno())
            else:
                os.fchmod(made.fileno(), 0o755)  # whatever the umask of the embedding program


def _look(base_root: Descriptor, path: str) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=base_root.fileno(), follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _copy_look(source: os.stat_result, dest_fd: int) -> None:
    os.fchown(dest_fd, source.st_uid, source.st_gid)
    os.fchmod(dest_fd, stat.S_IMODE(source.st_mode))
    os.utime(dest_fd, ns=(source.st_atime_ns, source.st_mtime_ns))


def _write(frame: Descriptor, path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=frame.fileno())
    with open(fd, "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
