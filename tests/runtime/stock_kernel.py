"""What only a stock Debian kernel shows: how the runtime does without what its age lacks, and what it has beyond
the kernel of a development machine (project quotas, all limits of a profile on a pure v2 tree).

Not collected by itself: `make test-vm` names it (tests/vm/selection), and runs it on Linux 6.1 in qemu.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from toolbox import get, python, sh

from webserv_rt.doctor import Check, examine
from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.kernel.cgroup import Layout
from webserv_rt.storage.pool import Pool

UNAPPLIED = {
    Layout.V2: (),
    Layout.HYBRID: ("memory_high_bytes",),
    Layout.V1: ("memory_high_bytes",),
}


def test_this_kernel_takes_layers_by_name_alone(host: Host) -> None:
    """Otherwise all that runs here proves nothing about such kernels."""
    assert host.workshop.layers_by_path


# The doctor


@pytest.fixture(scope="module")
def checks(pool: Pool) -> dict[str, Check]:
    """What the doctor finds."""
    return {check.name: check for check in examine(pool.path)}


def test_doctor_finds_nothing_missing(checks: dict[str, Check]) -> None:
    assert [check for check in checks.values() if check.status == "missing"] == []


def test_doctor_names_the_way_that_is_left_for_layers(checks: dict[str, Check]) -> None:
    assert checks["overlay"].status == checks["idmapped mount"].status == "ok"
    assert checks["overlay layers"] == Check(
        "overlay layers",
        "degraded",
        "by name, in a throw-away mount namespace per instance: a mount takes longer",
        "install Linux 6.15 or later",
    )


def test_doctor_knows_which_limits_hold(checks: dict[str, Check], host: Host) -> None:
    lacking = ", ".join(UNAPPLIED[host.cgroups.layout])
    assert checks["cgroup controllers"].status == checks["cgroup life"].status == "ok"
    assert checks["cgroup limits"].status == ("degraded" if lacking else "ok")
    assert lacking in checks["cgroup limits"].detail


def test_doctor_sees_the_pools_project_quota(checks: dict[str, Check]) -> None:
    assert checks["project quota"] == Check("project quota", "ok", "switched on where the pool is")


# Limits


def test_every_limit_of_the_profile_is_applied_or_named(instance: Instance) -> None:
    template = instance.incarnation.template
    assert template.unapplied_limits == UNAPPLIED[instance.host.cgroups.layout]
    if instance.host.cgroups.layout is not Layout.V2:
        return
    group = Path("/sys/fs/cgroup") / instance.incarnation.cgroup.path
    limits = template.profile.limits
    assert {
        name: (group / name).read_text().strip()
        for name in (
            *("memory.max", "memory.high", "memory.swap.max", "pids.max"),
            *("cpu.weight", "cpu.max", "io.bfq.weight"),
        )
    } == {
        "memory.max": str(limits.memory_bytes),
        "memory.high": str(limits.memory_high_bytes),
        "memory.swap.max": str(limits.swap_bytes),
        "pids.max": str(limits.pids),
        "cpu.weight": str(limits.cpu_weight),
        "cpu.max": f"{limits.cpu_quota_us} {limits.cpu_period_us}",
        "io.bfq.weight": f"default {limits.io_weight}",
    }


FILL = """
import errno, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
block, written = bytes(range(256)) * 4096, 0
try:
    while written < 1 << 30:
        written += os.write(fd, block)
except OSError as error:
    print(errno.errorcode[error.errno], written)
"""


@pytest.mark.parametrize("path", ["/opt/filler", "/var/lib/store/filler"])
def test_disk_filler_stops_at_its_profiles_storage_while_others_go_on(
    host: Host, instance: Instance, path: str
) -> None:
    limit = instance.incarnation.template.profile.storage_bytes
    with host.launch("toolbox") as other:
        code, written = python(instance, FILL, path).stdout.decode().split()
        assert code in ("ENOSPC", "EDQUOT")
        assert limit * 0.95 < int(written) <= limit
        sh(other, "dd if=/dev/zero of=/opt/file bs=1M count=16 && sync")
        assert get(other)[0] == get(instance)[0] == 200
    instance.reset()
    host.reaper.drain()
    sh(instance, "dd if=/dev/zero of=/opt/file bs=1M count=16 && sync")


def test_inside_the_disk_is_as_large_as_the_profiles_storage(instance: Instance) -> None:
    size = python(instance, "import os; s = os.statvfs('/'); print(s.f_blocks * s.f_frsize)").stdout
    assert int(size) == instance.incarnation.template.profile.storage_bytes
