"""Overlays, namespaces, processes and their confinement, as the trials found them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from webserv_rt.doctor.check import Check
from webserv_rt.doctor.limits import raise_sysctl, room_for_instances
from webserv_rt.doctor.trial import Outcome

_NAMESPACE_ADVICE = {
    "user": "check user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns and CONFIG_USER_NS",
    "time": "use a kernel with CONFIG_TIME_NS",
}
_OLD_KERNEL_ADVICE = "install Linux 5.19 or later, and run as root"
_IDMAP_ADVICE = "put the pool on XFS, btrfs or ext4: tmpfs needs Linux 6.3, network filesystems cannot"
_SECCOMP_ADVICE = "use a kernel with CONFIG_SECCOMP_FILTER, outside of other sandboxes"


def examine(trials: Mapping[str, Outcome]) -> list[Check]:
    """Return the checks of what an instance is made of."""
    return [
        _overlay(trials),
        _overlay_layers(trials),
        _tried(trials, "idmapped mount", "layers appear with an instance's own ids", _IDMAP_ADVICE),
        *(
            _namespace(trials, kind)
            for kind in ("user", "mount", "pid", "net", "ipc", "uts", "cgroup", "time")
        ),
        _tried(trials, "spawn", "clone3 with new namespaces, held by pidfd", _OLD_KERNEL_ADVICE),
        _tried(trials, "confinement", "seccomp filter, no_new_privs, capabilities dropped", _SECCOMP_ADVICE),
    ]


def _tried(trials: Mapping[str, Outcome], name: str, detail: str, advice: str) -> Check:
    outcome = trials[name]
    return Check(name, "ok", detail) if outcome.works else Check(name, "missing", outcome.text, advice)


def _overlay(trials: Mapping[str, Outcome]) -> Check:
    ways = trials["overlay by descriptor"], trials["overlay by path"]
    if any(way.works for way in ways):
        return Check("overlay", "ok", "volatile, over read-only layers")
    return Check("overlay", "missing", ways[1].text, "load the module (modprobe overlay), run as root")


def _overlay_layers(trials: Mapping[str, Outcome]) -> Check:
    if trials["overlay by descriptor"].works:
        return Check("overlay layers", "ok", "handed over by descriptor")
    if not trials["overlay by path"].works:
        return Check("overlay layers", "missing", "no overlay could be made", "see overlay")
    detail = "by name, in a throw-away mount namespace per instance: a mount takes longer"
    return Check("overlay layers", "degraded", detail, "install Linux 6.15 or later")


def _namespace(trials: Mapping[str, Outcome], kind: str) -> Check:
    name, outcome = f"{kind} namespace", trials[kind]
    if not outcome.works:
        return Check(name, "missing", outcome.text, _NAMESPACE_ADVICE.get(kind, "run as root of the host"))
    sysctl = f"user.max_{'mnt' if kind == 'mount' else kind}_namespaces"
    limit = int(Path("/proc/sys", sysctl.replace(".", "/")).read_text())
    return room_for_instances(
        name, limit, limit // 2, "2 each, as a spare may stand by", raise_sysctl(sysctl, 2048)
    )
