"""Filesystem images, loop-mounted through the system's own tools: pools are made and mounted rarely."""

from __future__ import annotations

import codecs
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from webserv_rt.errors import WebservError

# A shell that became root by `su` lacks the directories of the tools.
_SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES: Final = {
    "mkfs.xfs": "xfsprogs",
    "xfs_growfs": "xfsprogs",
    "losetup": "mount",
    "umount": "mount",
    "nsenter": "util-linux",
}


class ToolFailed(WebservError):
    """A system tool is missing or failed; the text holds what it said."""


def make_xfs(image_fd: int, prototype: str, contents: bytes) -> None:
    """Make an XFS filesystem that shares extents in the file IMAGE_FD, filled as PROTOTYPE says (mkfs -p).

    `{contents}` in the prototype stands for a file that holds CONTENTS.
    """
    with _memory_file(contents) as file:
        filled = prototype.format(contents=f"/proc/self/fd/{file.fileno()}")
        with _memory_file(filled.encode()) as prototype_file:
            fds = [file.fileno(), prototype_file.fileno(), image_fd]
            # -K: a sparse file has nothing to discard. All else is mkfs's choice: inode size, directory
            # block size, log size, sparse inodes, finobt, rmapbt and the number of allocation groups were
            # tried, none changes what a clone or a removal costs.
            options = ["-q", "-f", "-K", "-m", "reflink=1", "-p", f"/proc/self/fd/{fds[1]}"]
            _run(["mkfs.xfs", *options, f"/proc/self/fd/{image_fd}"], pass_fds=fds)


def _memory_file(contents: bytes) -> BinaryIO:
    file = open(os.memfd_create("mkfs"), "w+b", buffering=0)  # noqa: SIM115 (a descriptor, the caller's)
    file.write(contents)
    return file


def mount_xfs(image: Path, target: Path) -> None:
    """Mount IMAGE on TARGET, with project quotas where the kernel has them.

    The loop device goes away with the last mount of it (autoclear), also when mount(8) is killed. The
    propagation type stays as it is: were the mount private, copies of it in other mount namespaces would
    outlive the umount and keep the device.

    `discard` gives the host's filesystem back what the pool frees; its cost is lost in the noise.
    """
    options = "loop,noatime,discard"
    try:
        _run(["mount", "-t", "xfs", "-o", f"{options},prjquota", str(image), str(target)])
    except ToolFailed:
        _run(["mount", "-t", "xfs", "-o", options, str(image), str(target)])
    device = loop_device(target)
    if device is not None:
        _bypass_host_cache(device)


def _bypass_host_cache(device: str) -> None:
    """Let DEVICE read and write its image directly, where the host's filesystem can.

    Otherwise all data lies in the page cache twice, and one instance's fsync writes back everybody's data:
    beside a writer, fsync takes 3 ms instead of 8-17; PostgreSQL starts on a clone in 55 ms instead of 80.
    """
    try:
        _run(["losetup", "--direct-io=on", device])
    except ToolFailed:
        return


def unmount(target: Path) -> None:
    """Unmount TARGET; fails when somebody uses it."""
    _run(["umount", str(target)])


def grow_xfs(image: Path, target: Path, size_bytes: int) -> None:
    """Grow IMAGE, mounted on TARGET, to SIZE_BYTES while it is in use; may be repeated when interrupted."""
    device = loop_device(target)
    if device is None:
        raise ToolFailed(f"{target} is not loop-mounted")
    os.truncate(image, size_bytes)
    _run(["losetup", "--set-capacity", device])
    _run(["xfs_growfs", "-d", str(target)])


def loop_device(path: Path) -> str | None:
    """Return the loop device ("/dev/loop3") of the filesystem PATH is on, or None."""
    device = path.stat().st_dev
    sysfs = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    return f"/dev/{sysfs.resolve().name}" if (sysfs / "loop").is_dir() else None


def backing_file(device: str) -> str | None:
    """Return the path of the file behind the loop DEVICE, None when it is free."""
    try:
        return (Path("/sys/block") / Path(device).name / "loop/backing_file").read_text().rstrip("\n")
    except OSError:
        return None


def unmount_copies(device_number: str) -> list[int]:
    """Unmount the filesystem "MAJOR:MINOR" in all other mount namespaces, as far as it is not used there.

    Whoever makes a mount namespace without propagation while a pool is mounted has a copy of the mount,
    mostly without knowing. Returns the processes found in such namespaces.
    """
    seen = {Path("/proc/self/ns/mnt").stat().st_ino}
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError, ToolFailed):  # it ended meanwhile, or it uses the mount
            namespace = (entry / "ns/mnt").stat().st_ino
            targets = _mount_points(entry / "mountinfo", device_number)
            if namespace in seen or not targets:
                continue
            seen.add(namespace)
            pids.append(int(entry.name))
            for target in reversed(targets):
                _run(["nsenter", "--target", entry.name, "--mount", "umount", target])
    return sorted(pids)


def _mount_points(mountinfo: Path, device_number: str) -> list[str]:
    fields = [line.split(" ") for line in mountinfo.read_text().splitlines()]
    return [codecs.decode(line[4], "unicode_escape") for line in fields if line[2] == device_number]


def _run(command: Sequence[str], *, pass_fds: Sequence[int] = ()) -> None:
    environment = {"PATH": _SEARCH_PATH, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            pass_fds=pass_fds,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        package = _PACKAGES.get(command[0], "mount")
        raise ToolFailed(f"{command[0]} is not there: install it (Debian package {package})") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise ToolFailed(f"{' '.join(command)}: {said}")
