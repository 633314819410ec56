"""Where the pool is or would be: reflink, or an XFS image in its place; quotas and room."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from webserv_rt.doctor.check import Check
from webserv_rt.doctor.trial import Outcome

_MIN_FREE_BYTES = 4 << 30  # the built recipes (1-2 GiB each while they are made), and something to write to
_QUOTA_ADVICE = "make the pool no larger than what instances may fill (webserv-rt pool create)"


def examine(pool: Path, scratch: Path, trials: Mapping[str, Outcome]) -> list[Check]:
    """Return the checks of the filesystem that POOL is or would be on."""
    return [_reflink(pool, trials), _image(trials), _btrfs(trials), _project_quota(scratch), _room(scratch)]


def _reflink(pool: Path, trials: Mapping[str, Outcome]) -> Check:
    if trials["reflink"].works:
        return Check("reflink", "ok", f"{pool} is on a filesystem that shares blocks")
    if trials["xfs image"].works:
        return Check("reflink", "ok", f"not at {pool}, so the pool is a loop-mounted XFS image there")
    advice = "put the pool on XFS or btrfs, or make an XFS image possible (see below)"
    return Check("reflink", "missing", f"at {pool}: {trials['reflink'].text}", advice)


def _image(trials: Mapping[str, Outcome]) -> Check:
    outcome = trials["xfs image"]
    if outcome.works:
        return Check("xfs image", "ok", "made, mounted through a loop device, reflinks work")
    if "mkfs.xfs" in outcome.text:
        advice = "apt-get install xfsprogs"
    elif not trials["xfs"].works:
        advice = "install a kernel with XFS (modprobe xfs)"
    else:
        advice = "modprobe loop; run as root with access to /dev/loop-control and /dev/loop*"
    return Check("xfs image", "missing" if not trials["reflink"].works else "degraded", outcome.text, advice)


def _btrfs(trials: Mapping[str, Outcome]) -> Check:
    if trials["btrfs"].works:
        return Check("btrfs", "ok", "a pool may be on it")
    return Check("btrfs", "degraded", "the kernel does not know it: the pool has to be on XFS")


def _project_quota(scratch: Path) -> Check:
    """Tell whether one instance can be kept from filling the pool."""
    kind, options = _mount_of(scratch)
    if kind == "xfs" and re.search(r"\b(prjquota|pquota)\b", options):
        return Check("project quota", "ok", "switched on where the pool is")
    # XFS shows this file once it is loaded, if quotas are compiled in.
    if not Path("/proc/fs/xfs/xqmstat").exists():
        return Check(
            "project quota",
            "degraded",
            "this kernel's XFS has none: one instance can fill the pool",
            _QUOTA_ADVICE,
        )
    if kind == "xfs":
        return Check(
            "project quota", "degraded", "switched off where the pool is", "mount it with -o prjquota"
        )
    return Check("project quota", "ok", "available to an XFS image")


def _mount_of(path: Path) -> tuple[str, str]:
    """Return type and options of the filesystem that PATH is on."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            kind, _, options = after.split(" ")
            return kind, options
    return "unknown", ""


def _room(scratch: Path) -> Check:
    status = os.statvfs(scratch)
    free_bytes = status.f_bavail * status.f_frsize
    detail = f"{free_bytes / 2**30:.1f} GiB free"
    if free_bytes >= _MIN_FREE_BYTES:
        return Check("room", "ok", detail)
    return Check(
        "room", "degraded", detail, f"have {_MIN_FREE_BYTES >> 30} GiB free, or choose another place"
    )
