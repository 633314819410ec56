"""The doctor tries things for real, says what to do about what is missing, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from webserv_rt.doctor import Check, examine
from webserv_rt.doctor.limits import Limit, room_for_instances
from webserv_rt.doctor.trial import TrialsImpossible, run_trials, scratch_directory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the trials need root")

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import dataclasses, json, sys
from pathlib import Path
from webserv_rt.doctor import examine
print(json.dumps([dataclasses.asdict(check) for check in examine(Path(sys.argv[1]))]))
"""


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def examine_under(prefix: list[str], pool: Path, path: str | None = None) -> dict[str, Check]:
    """Examine in a process that PREFIX restricts in some way, with PATH as its search path."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | ({"PATH": path} if path else {})
    command = [*prefix, sys.executable, "-c", PROGRAM, str(pool)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return by_name([Check(**fields) for fields in json.loads(output)])


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[Path]:
    image, directory = tmp_path / "image", tmp_path / "xfs"
    directory.mkdir()
    with image.open("wb") as file:
        file.truncate(320 << 20)
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, directory], check=True)
    yield directory
    subprocess.run(["umount", directory], check=True)


def existing_objects(pool: Path) -> dict[str, set[str]]:
    """Return what the trials make: mounts, groups, loop devices and files."""
    return {
        "mounts": {line for line in Path("/proc/self/mounts").read_text().splitlines() if "doctor" in line},
        "groups": {str(path) for path in Path("/sys/fs/cgroup").rglob("*webserv-rt-doctor*")},
        "loops": {
            path.read_text()
            for path in Path("/sys/block").glob("loop*/loop/backing_file")
            if "webserv-rt-doctor" in path.read_text()
        },
        "files": {str(path) for path in pool.rglob("*")},
    }


def test_every_check_has_a_name_of_its_own_and_advice_unless_it_is_ok(tmp_path: Path) -> None:
    checks = examine(tmp_path)
    assert len(by_name(checks)) == len(checks) > 30
    assert [check for check in checks if (check.status == "ok") != (check.advice == "")] == []
    assert [check for check in checks if not check.detail or "\n" in check.detail] == []


def test_examination_is_short(tmp_path: Path) -> None:
    # Processor time, which is all of it on an idle machine, so that a busy one does not fail.
    before = sum(os.times()[:4])
    examine(tmp_path)
    assert 0 < sum(os.times()[:4]) - before < 2


def test_machine_that_runs_these_tests_can_run_instances(tmp_path: Path) -> None:
    assert [check for check in examine(tmp_path) if check.status == "missing"] == []


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = existing_objects(tmp_path)
    examine(tmp_path / "not" / "there" / "yet")
    assert existing_objects(tmp_path) == before


def test_nothing_is_left_behind_when_the_trials_are_killed(tmp_path: Path) -> None:
    before = existing_objects(tmp_path)
    for timeout_ms in range(20, 400, 30):
        try:
            with scratch_directory(tmp_path) as scratch:
                run_trials(scratch, timeout_ms / 1000)
        except TrialsImpossible as error:
            assert "took more than" in str(error)
    # The kernel drops the mount, and with it the loop device, after the killed process is gone.
    deadline = time.monotonic() + 5
    while existing_objects(tmp_path) != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert existing_objects(tmp_path) == before


def test_pool_on_xfs_needs_no_image(xfs: Path) -> None:
    checks = by_name(examine(xfs / "pool"))
    assert checks["reflink"].status == "ok"
    assert "shares blocks" in checks["reflink"].detail


def test_pool_on_another_filesystem_becomes_an_image() -> None:
    checks = by_name(examine(Path("/dev/shm/pool")))
    assert checks["reflink"].status == "ok"
    assert "loop-mounted XFS image" in checks["reflink"].detail


def test_place_that_cannot_be_written_is_named() -> None:
    checks = by_name(examine(Path("/proc/sys/pool")))
    assert checks["trials"].status == "missing"
    assert "cannot make a directory in /proc/sys" in checks["trials"].detail


def test_missing_capability_is_named(tmp_path: Path) -> None:
    checks = examine_under(["setpriv", "--bounding-set", "-sys_admin"], tmp_path)
    assert (checks["capabilities"].status, checks["capabilities"].detail) == (
        "missing",
        "without CAP_SYS_ADMIN",
    )
    assert checks["trials"].status == "missing"
    assert "Operation not permitted" in checks["trials"].detail


def test_missing_sys_resource_only_degrades(tmp_path: Path) -> None:
    checks = examine_under(["setpriv", "--bounding-set", "-sys_resource"], tmp_path)
    assert checks["raising limits"].status == "degraded"
    assert checks["overlay"].status == checks["spawn"].status == "ok"


def test_missing_sys_ptrace_costs_memory_figures(tmp_path: Path) -> None:
    checks = examine_under(["setpriv", "--bounding-set", "-sys_ptrace"], tmp_path)
    assert checks["ptrace"].status == "degraded"
    assert "no PSS" in checks["ptrace"].detail


def test_root_of_a_user_namespace_is_not_root_enough(tmp_path: Path) -> None:
    checks = examine_under(["unshare", "--user", "--map-root-user"], tmp_path)
    assert checks["user"].status == "missing"
    assert checks["idmapped mount"].status == checks["user namespace"].status == "missing"
    assert checks["xfs image"].status == "missing"


def test_namespace_that_a_sysctl_forbids_is_missing(tmp_path: Path) -> None:
    # The limits of a new user namespace are its own: the host's stay as they are.
    forbid = 'echo 0 > /proc/sys/user/max_time_namespaces; exec "$@"'
    checks = examine_under(["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"], tmp_path)
    assert checks["time namespace"].status == "missing"
    assert "No space left" in checks["time namespace"].detail
    assert checks["uts namespace"].status == "ok"


def test_low_limit_of_descriptors_is_counted_in_instances(tmp_path: Path) -> None:
    check = examine_under(["prlimit", "--nofile=256:256"], tmp_path)["RLIMIT_NOFILE"]
    assert check.status == "degraded"
    assert re.match(r"256: room for 15 more instances", check.detail)


def test_missing_programs_are_named_with_their_packages(tmp_path: Path) -> None:
    # A search path with the programs of util-linux and coreutils only.
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("unshare", "mount", "umount", "true"):
        (programs / name).symlink_to(Path("/usr/bin") / name)
    checks = examine_under([], tmp_path, path=str(programs))
    assert checks["xfs image"].detail == "mkfs.xfs is not installed"
    assert checks["xfs image"].advice == "apt-get install xfsprogs"
    assert checks["reflink"].status == "missing"
    assert (checks["podman"].status, checks["podman"].advice) == ("degraded", "apt-get install podman")


def test_read_only_cgroups_are_missing(tmp_path: Path) -> None:
    remount = 'mount --bind -o ro /sys /mnt && mount --move /mnt /sys && exec "$@"'
    checks = examine_under(["unshare", "--mount", "sh", "-c", remount, "sh"], tmp_path)
    assert checks["cgroup life"].status == "missing"
    assert checks["cgroup controllers"].status == "degraded"


def test_limit_that_this_kernel_has_not_is_left_out() -> None:
    assert Limit("kernel.no_such_thing", 1, "things").check() is None


def test_limit_is_divided_among_instances_after_what_is_used() -> None:
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    check = Limit("kernel.pid_max", 10, "processes", lambda: limit - 1005).check()
    assert check is not None
    assert check.status == "degraded"
    assert check.detail == f"{limit:,}: room for 100 more instances (10 processes each)"
    assert check.advice.startswith("sysctl -w kernel.pid_max=")


@pytest.mark.parametrize(
    ("n_instances", "status"), [(0, "missing"), (1, "degraded"), (999, "degraded"), (1000, "ok")]
)
def test_limit_is_judged_by_the_instances_it_allows(n_instances: int, status: str) -> None:
    assert room_for_instances("x", 5, n_instances, "need", "advice").status == status
