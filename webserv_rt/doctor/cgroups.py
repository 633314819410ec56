"""The control groups of this host: how they are laid out, and what they can limit."""

from __future__ import annotations

import os

from webserv_rt.doctor.check import Check
from webserv_rt.doctor.trial import Outcome
from webserv_rt.kernel.cgroup import CgroupHost, Hierarchy, Layout

_WANTED = ("memory", "cpu", "pids", "io")


def examine(trial: Outcome) -> list[Check]:
    """Return the checks of layout, controllers, limits, and of a group really made, frozen and killed."""
    with CgroupHost() as host:
        layout, hierarchies = host.layout, host.hierarchies
    return [
        _layout(layout),
        _controllers(hierarchies),
        _life(trial),
        _limits(trial),
    ]


def _layout(layout: Layout) -> Check:
    if layout is Layout.V2:
        return Check("cgroup layout", "ok", "v2")
    boot = "boot with systemd.unified_cgroup_hierarchy=1 for pure v2"
    if layout is Layout.HYBRID:
        return Check("cgroup layout", "ok", "hybrid: v2 freezes and kills, v1 limits")
    if layout is Layout.V1:
        return Check("cgroup layout", "degraded", "v1 alone: killing an instance takes longer", boot)
    return Check("cgroup layout", "missing", "none is mounted", "mount -t cgroup2 none /sys/fs/cgroup")


def _controllers(hierarchies: tuple[Hierarchy, ...]) -> Check:
    usable = {
        name for hierarchy in hierarchies if hierarchy.refusal is None for name in hierarchy.controllers
    }
    lacking = [name for name in _WANTED if name not in usable]
    if not lacking:
        return Check("cgroup controllers", "ok", ", ".join(_WANTED))
    refused = [f"{h.directory}: {os.strerror(h.refusal)}" for h in hierarchies if h.refusal is not None]
    detail = "; ".join([f"without {', '.join(lacking)}: an instance can use up the host's", *refused])
    return Check(
        "cgroup controllers", "degraded", detail, "boot with cgroup_enable=memory; delegate the controllers"
    )


def _life(outcome: Outcome) -> Check:
    if outcome.works:
        return Check("cgroup life", "ok", "a process was born in a group, frozen and killed")
    return Check("cgroup life", "missing", outcome.text, "run as root, with /sys/fs/cgroup mounted writable")


def _limits(outcome: Outcome) -> Check:
    if not outcome.works:
        return Check("cgroup limits", "missing", "no group could be made", "see cgroup life")
    if outcome.text:
        return Check("cgroup limits", "degraded", f"not offered: {outcome.text}", _LIMITS_ADVICE)
    return Check("cgroup limits", "ok", "all that profiles use")


_LIMITS_ADVICE = "the rest of a profile holds; pure v2 has memory.high, iocost or bfq heed io weights"
