"""The kernel's age and the rights of this process."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from webserv_rt.doctor.check import Check

_OLDEST_KERNEL = (5, 19)  # overlays over idmapped layers; what else is needed is tried, not looked up
# Bits of capability.h.
_NEEDED = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_ADMIN": 12,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "MKNOD": 27,
    "SETFCAP": 31,
}
_SYS_RESOURCE = 24
_SYS_PTRACE = 19


def examine() -> list[Check]:
    """Return the checks of kernel version, user, capabilities and ptrace."""
    held = _effective_capabilities()
    return [_kernel(), _user(), _capabilities(held), _resource_limits(held), _ptrace(held)]


def _kernel() -> Check:
    release = os.uname().release
    match = re.match(r"(\d+)\.(\d+)", release)
    assert match, f"the kernel calls itself {release}"
    if (int(match[1]), int(match[2])) >= _OLDEST_KERNEL:
        return Check("kernel", "ok", f"Linux {release}")
    return Check(
        "kernel", "missing", f"Linux {release} is too old", "install Linux 5.19 or later (Debian 12 has 6.1)"
    )


def _user() -> Check:
    uid_map = Path("/proc/self/uid_map").read_text().split()
    if os.geteuid() != 0:
        return Check("user", "missing", f"uid {os.geteuid()}", "run as root: sudo webserv-rt ...")
    if int(uid_map[2]) < 1 << 31:
        detail = "root of a user namespace, not of the host"
        return Check("user", "missing", detail, "run as root of the host, or in a privileged container")
    return Check("user", "ok", "root")


def _effective_capabilities() -> int:
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match, "/proc/self/status has no CapEff"
    return int(match[1], 16)


def _capabilities(held: int) -> Check:
    lacking = [f"CAP_{name}" for name, bit in _NEEDED.items() if not held >> bit & 1]
    if not lacking:
        return Check("capabilities", "ok", "all that are needed")
    return Check(
        "capabilities", "missing", f"without {_listed(lacking)}", "run as root, in a container --privileged"
    )


def _resource_limits(held: int) -> Check:
    if held >> _SYS_RESOURCE & 1:
        return Check("raising limits", "ok", "CAP_SYS_RESOURCE is held")
    detail = "without CAP_SYS_RESOURCE: hard limits are final, also those of the descriptors below"
    return Check(
        "raising limits", "degraded", detail, "give it to the process, or raise the limits before it starts"
    )


def _ptrace(held: int) -> Check:
    """Judge what reading other processes' memory maps (statistics) and live snapshots will need."""
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    scope = int(yama.read_text()) if yama.exists() else 0
    if scope >= 3:
        detail = "kernel.yama.ptrace_scope=3 forbids it until the next boot: no live snapshots"
        return Check(
            "ptrace", "degraded", detail, "set kernel.yama.ptrace_scope to 1 in /etc/sysctl.d and reboot"
        )
    if not held >> _SYS_PTRACE & 1:
        detail = "without CAP_SYS_PTRACE: no PSS in statistics, no live snapshots"
        return Check("ptrace", "degraded", detail, "give the capability to the process")
    return Check("ptrace", "ok", "of any process")


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)
