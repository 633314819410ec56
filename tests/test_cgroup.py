"""Control groups, with real groups and real processes, on whichever layout the host has.

`tests/vm/run.py` runs the same file on a stock Debian kernel, with the layouts that this host does not have.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from webserv_rt.kernel.cgroup import Cgroup, CgroupHost, Entry, Hierarchy, Layout, Limits
from webserv_rt.kernel.error import KernelError

MIB = 1 << 20


@pytest.fixture(scope="module")
def host() -> Iterator[CgroupHost]:
    with CgroupHost() as host:
        if not any(hierarchy.refusal is None for hierarchy in host.hierarchies):
            pytest.skip("no cgroup hierarchy may be written here (root, or a delegated subtree, is needed)")
        yield host
        for directory in directories(host, "webserv_rt_test"):
            with contextlib.suppress(OSError):  # another run is using it
                directory.rmdir()


@pytest.fixture
def parent(host: CgroupHost) -> Iterator[str]:
    """A parent of this test's own, that has to be gone afterwards without force."""
    path = f"webserv_rt_test/{uuid.uuid4().hex[:12]}"
    yield path
    with contextlib.suppress(KernelError):
        host.group(path).kill()
    host.group(path).destroy()


@pytest.fixture
def group(host: CgroupHost, parent: str) -> Cgroup:
    return host.create(f"{parent}/instance")


def usable(host: CgroupHost) -> list[Hierarchy]:
    return [hierarchy for hierarchy in host.hierarchies if hierarchy.refusal is None]


def directories(host: CgroupHost, path: str) -> list[Path]:
    return [Path(hierarchy.directory, path) for hierarchy in usable(host)]


def file_of(host: CgroupHost, controller: str, path: str, *, v1: str, v2: str) -> str:
    hierarchy = hierarchy_with(host, controller)
    return Path(hierarchy.directory, path, v1 if hierarchy.version == 1 else v2).read_text().strip()


def hierarchy_with(host: CgroupHost, controller: str) -> Hierarchy:
    found = [hierarchy for hierarchy in usable(host) if controller in hierarchy.controllers]
    if not found:
        pytest.skip(f"this host has no {controller} controller")
    return found[0]


@contextlib.contextmanager
def running_in(group: Cgroup, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that has entered GROUP by itself; killed and reaped at the end."""
    joins = [
        f"echo 0 > {directory}/{'cgroup.procs' if hierarchy.version == 2 else 'tasks'}"
        for hierarchy, directory in zip(usable(group.host), directories(group.host, group.path), strict=True)
    ]
    script = " && ".join([*joins, 'exec "$@"'])
    # A sanitizer that is preloaded for the extension's sake would count as the program's own memory.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    process = subprocess.Popen(
        ["sh", "-c", script, "sh", *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        with contextlib.suppress(KernelError):  # the test may have destroyed the group
            group.kill()
        process.communicate()


def python_in(
    group: Cgroup, script: str, *arguments: str
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    # -S -E: what counts is what the script does, not what the interpreter loads.
    return running_in(group, sys.executable, "-S", "-E", "-c", script, *arguments)


def wait_until_inside(group: Cgroup, n_processes: int = 1) -> None:
    deadline = time.monotonic() + 20
    while len(group.pids()) < n_processes:
        assert time.monotonic() < deadline, "the process did not enter its group"
        time.sleep(0.01)


def n_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def reads_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


# Discovery


def test_layout_is_what_is_mounted(host: CgroupHost) -> None:
    kinds = set(re.findall(r" - (cgroup2?) ", Path("/proc/self/mountinfo").read_text()))
    expected = {("cgroup2",): Layout.V2, ("cgroup",): Layout.V1, ("cgroup", "cgroup2"): Layout.HYBRID}
    assert host.layout is expected[tuple(sorted(kinds))]


def test_every_controller_has_one_hierarchy(host: CgroupHost) -> None:
    controllers = [name for hierarchy in host.hierarchies for name in hierarchy.controllers]
    assert len(controllers) == len(set(controllers))
    assert {"memory", "cpu", "pids"} <= set(controllers)


def test_v1_freezer_is_used_only_without_v2(host: CgroupHost) -> None:
    has_v1_freezer = any("freezer" in hierarchy.controllers for hierarchy in host.hierarchies)
    assert has_v1_freezer == (host.layout is Layout.V1)


# Delegation: a service that may write only its own part of the tree

USE_GROUPS = """
import subprocess
from webserv_rt.kernel.cgroup import CgroupHost, Limits
with CgroupHost() as host:
    v2 = host.hierarchies[0]
    print(v2.directory)
    group = host.create("webserv_rt/one")
    group.limit(Limits(pids=10))
    enter = f"echo 0 > {v2.directory}/{group.path}/cgroup.procs && exec sleep 60"
    process = subprocess.Popen(["sh", "-c", enter])
    while group.pids() != [process.pid]:
        assert process.poll() is None
    group.kill()
    print(process.wait())
    group.wait_empty()
    group.destroy()
    host.group("webserv_rt").destroy()
"""


@pytest.fixture
def delegated(host: CgroupHost, parent: str) -> Path:
    """A v2 directory with a group below it for the service's own process."""
    if host.layout is Layout.V1:
        pytest.skip("delegation is of v2 hierarchies")
    host.create(f"{parent}/service")
    directory = Path(host.hierarchies[0].directory, parent, "service")
    (directory / "supervisor").mkdir()
    return directory


def run_script(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_user_with_a_delegated_subtree_makes_groups_in_it(delegated: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    for path in (delegated, delegated / "cgroup.procs", delegated / "cgroup.subtree_control"):
        os.chown(path, 65534, 65534)
    os.chown(delegated / "supervisor", 65534, 65534)
    os.chown(delegated / "supervisor/cgroup.procs", 65534, 65534)
    # The right to read everything lets the user read this checkout, wherever it is, and write nothing.
    capabilities = "--inh-caps=-all,+dac_read_search --ambient-caps=+dac_read_search"
    become = f"setpriv --reuid 65534 --clear-groups {capabilities}"
    script = f'echo 0 > {delegated}/supervisor/cgroup.procs && exec {become} "$@"'
    result = run_script("sh", "-c", script, "sh", sys.executable, "-c", USE_GROUPS)
    assert (result.stdout, result.stderr) == (f"{delegated}\n-9\n", "")


NAMESPACE = """
set -e
echo 0 > {delegated}/cgroup.procs
exec unshare --cgroup --mount --propagation private sh -ec '
echo 0 > {inside}/cgroup.procs
mount -t tmpfs none /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
exec "$@"' sh "$@"
"""


def test_groups_are_made_below_the_root_of_a_cgroup_namespace(delegated: Path) -> None:
    script = NAMESPACE.format(delegated=delegated, inside=delegated / "supervisor")
    result = run_script("sh", "-c", script, "sh", sys.executable, "-c", USE_GROUPS)
    assert (result.stdout, result.stderr) == ("/sys/fs/cgroup\n-9\n", "")


def test_delegated_root_that_holds_processes_is_refused_where_controllers_are_to_be_enabled(
    host: CgroupHost, delegated: Path
) -> None:
    script = NAMESPACE.format(delegated=delegated, inside=delegated)
    result = run_script("sh", "-c", script, "sh", sys.executable, "-c", USE_GROUPS)
    if host.layout is Layout.HYBRID:  # the v2 hierarchy has no controllers
        assert (result.stdout, result.stderr) == ("/sys/fs/cgroup\n-9\n", "")
    else:
        advice = "(processes live in it: move them to a child group first): EBUSY"
        assert f"enable cgroup controllers on /sys/fs/cgroup/. {advice}" in result.stderr
        assert [child.name for child in delegated.iterdir() if child.is_dir()] == ["supervisor"]


# Making and removing


def test_group_is_made_in_every_hierarchy(host: CgroupHost, group: Cgroup) -> None:
    assert all(directory.is_dir() for directory in directories(host, group.path))


def test_v2_controllers_are_enabled_in_the_group(host: CgroupHost, group: Cgroup) -> None:
    for hierarchy, directory in zip(usable(host), directories(host, group.path), strict=True):
        if hierarchy.version == 2:
            offered = set((directory / "cgroup.controllers").read_text().split())
            assert hierarchy.controllers <= offered


def test_group_that_exists_is_refused(host: CgroupHost, group: Cgroup) -> None:
    with pytest.raises(KernelError, match=rf"make cgroup on .*{group.path}: EEXIST"):
        host.create(group.path)
    assert all(directory.is_dir() for directory in directories(host, group.path))


@pytest.mark.parametrize("last", [0, -1])
def test_failure_in_one_hierarchy_leaves_nothing_in_the_others(
    host: CgroupHost, parent: str, last: int
) -> None:
    collision = directories(host, f"{parent}/instance")[last]
    collision.mkdir(parents=True)
    with pytest.raises(KernelError, match="EEXIST"):
        host.create(f"{parent}/instance")
    left = [directory for directory in directories(host, f"{parent}/instance") if directory.exists()]
    assert left == [collision]


def test_failure_below_new_parents_leaves_no_parents(host: CgroupHost, parent: str) -> None:
    # The kernel takes a parent's name but not one with a newline, and none that makes the path too long.
    with pytest.raises(KernelError, match=r"(?s)make cgroup.*EINVAL"):
        host.create(f"{parent}/a/b/line\nbreak")
    with pytest.raises(KernelError, match=r"make cgroup.*ENAMETOOLONG"):
        host.create(f"{parent}/a/b/{'x' * 4096}")
    assert not any(directory.exists() for directory in directories(host, parent))


@pytest.mark.parametrize("path", ["", "/", "/x", "x/", "a//b", ".", "a/..", "../x", "a/./b"])
def test_path_that_is_not_a_plain_relative_one_is_refused(host: CgroupHost, path: str) -> None:
    with pytest.raises(KernelError, match=r"name a cgroup.*EINVAL"):
        host.create(path)
    with pytest.raises(KernelError, match=r"name a cgroup.*EINVAL"):
        host.group(path).destroy()
    with pytest.raises(KernelError, match=r"name a cgroup.*EINVAL"):
        host.children(path)


def test_children_are_listed_wherever_they_exist(host: CgroupHost, parent: str) -> None:
    host.create(f"{parent}/whole")
    directories(host, f"{parent}/left_in_one_hierarchy")[-1].mkdir()
    assert host.children(parent) == ["left_in_one_hierarchy", "whole"]
    assert host.children(f"{parent}/none_such") == []


def test_destroy_removes_nested_groups(host: CgroupHost, group: Cgroup) -> None:
    for directory in directories(host, f"{group.path}/inner/.innermost"):
        directory.mkdir(parents=True)
    group.destroy()
    assert not any(directory.exists() for directory in directories(host, group.path))


def test_destroy_of_a_group_left_in_one_hierarchy_or_none_is_no_error(host: CgroupHost, parent: str) -> None:
    directories(host, f"{parent}/left")[-1].mkdir(parents=True)
    host.group(f"{parent}/left").destroy()
    host.group(f"{parent}/left").destroy()
    assert host.children(parent) == []


def test_destroy_of_a_group_in_use_is_refused_in_bounded_time(group: Cgroup) -> None:
    with running_in(group, "sleep", "60"):
        wait_until_inside(group)
        started = time.monotonic()
        with pytest.raises(KernelError, match=r"remove cgroup on .*instance: EBUSY"):
            group.destroy(timeout_s=0.2)
        assert 0.19 <= time.monotonic() - started < 2
        assert len(group.pids()) == 1


def test_500_rounds_leave_nothing(host: CgroupHost, parent: str) -> None:
    before = _counts()
    for number in range(500):
        group = host.create(f"{parent}/{number}")
        group.limit(Limits(memory_bytes=64 * MIB, cpu_weight=50, pids=16))
        group.open_entry().close()
        group.statistics()
        group.kill()
        group.destroy()
    host.group(parent).destroy()
    assert _counts() == before


def _counts() -> dict[str, int]:
    # os.walk bears that groups of others vanish meanwhile.
    n_groups = sum(
        len(groups) for path, groups, _ in os.walk("/sys/fs/cgroup") if path.endswith("/webserv_rt_test")
    )
    return {"descriptors": n_descriptors(), "groups": n_groups}


def test_parent_that_others_remove_when_empty_is_made_again(host: CgroupHost, parent: str) -> None:
    def make_and_remove(number: int) -> None:
        for _ in range(50):
            host.create(f"{parent}/deep/er/{number}").destroy()
            for directory in directories(host, f"{parent}/deep/er"):
                with contextlib.suppress(OSError):
                    directory.rmdir()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make_and_remove, range(4)))


# Entering


def test_entry_has_one_way_per_hierarchy(host: CgroupHost, group: Cgroup) -> None:
    with group.open_entry() as entry:
        assert (entry.born_in is not None) == (host.layout is not Layout.V1)
        assert len(entry.tasks) == sum(hierarchy.version == 1 for hierarchy in usable(host))
        for descriptor in _descriptors(entry):
            assert not os.get_inheritable(descriptor)


def test_process_that_writes_0_to_the_tasks_files_is_in_the_v1_groups(
    host: CgroupHost, group: Cgroup
) -> None:
    with group.open_entry() as entry:
        fds = [descriptor.fileno() for descriptor in entry.tasks]
        script = (
            "import os, sys\n"
            "for fd in sys.argv[1:]: os.write(int(fd), b'0')\n"
            "print(open('/proc/self/cgroup').read())"
        )
        command = [sys.executable, "-S", "-E", "-c", script, *map(str, fds)]
        output = subprocess.run(command, pass_fds=fds, capture_output=True, check=True, text=True).stdout
    inside = [line for line in output.splitlines() if line.endswith(group.path)]
    assert len(inside) == len(fds)


def _descriptors(entry: Entry) -> list[int]:
    return [descriptor.fileno() for descriptor in (entry.born_in, *entry.tasks) if descriptor is not None]


def test_entry_of_a_group_that_is_not_there_is_refused(host: CgroupHost, parent: str) -> None:
    before = n_descriptors()
    with pytest.raises(KernelError, match=rf"open cgroup on .*{parent}/none: ENOENT"):
        host.group(f"{parent}/none").open_entry()
    assert n_descriptors() == before


# Limits


def test_limits_are_what_the_kernel_then_shows(host: CgroupHost, group: Cgroup) -> None:
    unapplied = group.limit(
        Limits(memory_bytes=64 * MIB, cpu_weight=50, cpu_quota_us=20_000, cpu_period_us=50_000, pids=7)
    )
    assert unapplied == ()
    memory = file_of(host, "memory", group.path, v1="memory.limit_in_bytes", v2="memory.max")
    assert memory == str(64 * MIB)
    assert file_of(host, "cpu", group.path, v1="cpu.shares", v2="cpu.weight") in ("512", "50")
    assert file_of(host, "cpu", group.path, v1="cpu.cfs_quota_us", v2="cpu.max") in ("20000", "20000 50000")
    assert file_of(host, "pids", group.path, v1="pids.max", v2="pids.max") == "7"


def test_what_the_hierarchy_lacks_is_named(host: CgroupHost, group: Cgroup) -> None:
    unapplied = group.limit(Limits(memory_high_bytes=32 * MIB, io_weight=50))
    is_v1 = hierarchy_with(host, "memory").version == 1
    assert ("memory_high_bytes" in unapplied) == is_v1
    heeds_io_weight = any(
        "[bfq]" in path.read_text() for path in Path("/sys/block").glob("*/queue/scheduler")
    )
    assert ("io_weight" in unapplied) == (not heeds_io_weight)


def test_limits_of_a_group_in_use_can_be_raised_and_lowered(host: CgroupHost, group: Cgroup) -> None:
    for n_mib in (64, 256, 32):
        unapplied = group.limit(Limits(memory_bytes=n_mib * MIB, swap_bytes=0))
        assert set(unapplied) <= {"swap_bytes"}
        memory = file_of(host, "memory", group.path, v1="memory.limit_in_bytes", v2="memory.max")
        assert memory == str(n_mib * MIB)


def test_swap_limit_is_applied_or_named(host: CgroupHost, group: Cgroup) -> None:
    unapplied = group.limit(Limits(memory_bytes=64 * MIB, swap_bytes=16 * MIB))
    if unapplied:
        assert unapplied == ("swap_bytes",)
        directory = Path(hierarchy_with(host, "memory").directory, group.path)
        assert not (directory / "memory.memsw.limit_in_bytes").exists()
        assert not (directory / "memory.swap.max").exists()
    else:
        shown = file_of(host, "memory", group.path, v1="memory.memsw.limit_in_bytes", v2="memory.swap.max")
        assert shown in (str(80 * MIB), str(16 * MIB))


def test_io_rate_is_shown_for_its_device(host: CgroupHost, group: Cgroup) -> None:
    device = _some_disk()
    rates = Limits(io_read_bytes_per_s=5 * MIB, io_write_bytes_per_s=3 * MIB, io_device=device)
    assert group.limit(rates) == ()
    shown = file_of(host, "io", group.path, v1="blkio.throttle.write_bps_device", v2="io.max")
    assert f"{device[0]}:{device[1]}" in shown
    assert str(3 * MIB) in shown


def _some_disk() -> tuple[int, int]:
    for path in sorted(Path("/sys/block").glob("*/dev")):
        major, minor = path.read_text().split(":")
        return int(major), int(minor)
    pytest.skip("this machine has no block device")


def _disk_of(path: Path) -> tuple[int, int]:
    device = path.stat().st_dev
    if os.major(device) == 0:
        pytest.skip(f"{path} is on no block device")
    node = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    disk = node.parent if (node / "partition").exists() else node
    major, minor = (disk / "dev").read_text().split(":")
    return int(major), int(minor)


def test_value_that_the_kernel_refuses_is_an_error_naming_file_and_value(group: Cgroup) -> None:
    with pytest.raises(KernelError, match=r'limit cgroup on .*instance/.*cpu.* to "1": EINVAL'):
        group.limit(Limits(cpu_quota_us=1))


def test_zero_is_refused(group: Cgroup) -> None:
    with pytest.raises(KernelError, match=r"pids 0 .*EINVAL"):
        group.limit(Limits(pids=0))


def test_limit_on_a_group_that_is_not_there_is_an_error(host: CgroupHost, parent: str) -> None:
    with pytest.raises(KernelError, match=r"limit cgroup .*ENOENT"):
        host.group(f"{parent}/none").limit(Limits(pids=5))


def test_weight_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="cpu_weight=20000: a weight is from 1 to 10000"):
        Limits(cpu_weight=20_000)


def test_io_rate_without_device_is_refused() -> None:
    with pytest.raises(ValueError, match="need io_device"):
        Limits(io_read_bytes_per_s=MIB)


# Limits at work


FORK_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def test_memory_hog_is_killed_at_its_limit(group: Cgroup) -> None:
    group.limit(Limits(memory_bytes=64 * MIB, swap_bytes=0))
    script = "hog = []\nfor _ in range(512): hog.append(bytearray(b'x' * (1 << 20)))\nprint('survived')"
    with python_in(group, script) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert output == b""
    statistics = group.statistics()
    assert statistics.oom_kills == 1
    assert statistics.memory_peak_bytes is None or 60 * MIB <= statistics.memory_peak_bytes <= 64 * MIB


def test_process_within_its_memory_limit_lives(group: Cgroup) -> None:
    group.limit(Limits(memory_bytes=128 * MIB))
    with python_in(group, "hog = bytearray(b'x' * (32 << 20)); print('survived')") as process:
        output, _ = process.communicate(timeout=60)
    assert output == b"survived\n"
    assert group.statistics().oom_kills == 0


def test_fork_bomb_stops_at_the_pids_limit(group: Cgroup) -> None:
    group.limit(Limits(pids=20))
    with python_in(group, FORK_BOMB):
        wait_until_inside(group, 10)
        counts = []
        for _ in range(50):
            counts.append(group.statistics().pids)
            time.sleep(0.01)
        assert max(count for count in counts if count is not None) <= 20
        group.kill()
        group.wait_empty()


def test_cpu_quota_throttles(group: Cgroup) -> None:
    group.limit(Limits(cpu_quota_us=10_000, cpu_period_us=100_000))
    with python_in(group, "while True: pass"):
        wait_until_inside(group)
        before, started = group.statistics(), time.monotonic()
        time.sleep(1.5)
        after, elapsed_us = group.statistics(), (time.monotonic() - started) * 1e6
    assert before.cpu_us is not None and after.cpu_us is not None and after.cpu_throttled_us is not None
    assert after.cpu_us - before.cpu_us < 0.25 * elapsed_us
    assert after.cpu_throttled_us > 0.3 * elapsed_us


# Freezing, killing


COUNTER = """
import sys
number = 0
with open(sys.argv[1], "r+b", buffering=0) as file:
    while True:
        number += 1
        file.seek(0)
        file.write(b"%020d" % number)
"""


def test_freeze_really_stops_a_counter_and_thaw_continues_it(group: Cgroup, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_bytes(b"0" * 20)
    with python_in(group, COUNTER, str(counter)):
        _wait_for_change(counter)
        group.freeze()
        frozen_at = counter.read_bytes()
        time.sleep(0.3)
        assert counter.read_bytes() == frozen_at
        group.thaw()
        _wait_for_change(counter)


def _wait_for_change(path: Path) -> None:
    before, deadline = path.read_bytes(), time.monotonic() + 20
    while path.read_bytes() == before:
        assert time.monotonic() < deadline, "the counter does not move"
        time.sleep(0.01)


def test_empty_group_can_be_frozen_and_thawed(group: Cgroup) -> None:
    group.freeze()
    group.thaw()


def test_kill_empties_a_group_that_forks(group: Cgroup) -> None:
    group.limit(Limits(pids=200))
    with python_in(group, FORK_BOMB):
        wait_until_inside(group, 20)
        group.kill()
        group.wait_empty()
        assert group.pids() == []
        group.destroy()


def test_kill_ends_a_frozen_group(group: Cgroup) -> None:
    with running_in(group, "sleep", "60") as process:
        wait_until_inside(group)
        group.freeze()
        group.kill()
        group.wait_empty()
        assert process.wait(timeout=10) == -signal.SIGKILL


def test_kill_reaches_groups_below(host: CgroupHost, group: Cgroup) -> None:
    inner = host.create(f"{group.path}/inner")
    with running_in(inner, "sleep", "60") as process:
        wait_until_inside(inner)
        assert group.pids() == inner.pids() == [process.pid]
        group.kill()
        group.wait_empty()
        assert process.wait(timeout=10) == -signal.SIGKILL


def test_kill_ends_frozen_groups_below(host: CgroupHost, group: Cgroup) -> None:
    """A killed owner leaves spares frozen; on v1 thawing the owner's group does not thaw theirs."""
    innermost = host.create(f"{group.path}/inner/innermost")
    with running_in(innermost, "sleep", "60") as process:
        wait_until_inside(innermost)
        innermost.freeze()
        host.group(f"{group.path}/inner").freeze()
        group.kill()
        group.wait_empty()
        assert process.wait(timeout=10) == -signal.SIGKILL


def test_kill_of_an_empty_group_is_no_error(group: Cgroup) -> None:
    group.kill()
    group.wait_empty(timeout_s=0)


def test_kill_leaves_the_neighbour_alone(host: CgroupHost, parent: str) -> None:
    one, two = host.create(f"{parent}/one"), host.create(f"{parent}/two")
    with running_in(one, "sleep", "60"), running_in(two, "sleep", "60") as survivor:
        wait_until_inside(one)
        wait_until_inside(two)
        one.kill()
        one.wait_empty()
        assert survivor.poll() is None
        assert two.pids() == [survivor.pid]


def test_wait_empty_gives_up_in_bounded_time(group: Cgroup) -> None:
    with running_in(group, "sleep", "60"):
        wait_until_inside(group)
        started = time.monotonic()
        with pytest.raises(KernelError) as caught:
            group.wait_empty(timeout_s=0.2)
        assert caught.value.errno == errno.ETIMEDOUT
        assert 0.19 <= time.monotonic() - started < 2


def test_pids_names_more_processes_than_a_first_guess(group: Cgroup) -> None:
    script = (
        "import os, signal\n"
        "for _ in range(300): os.fork() or signal.pause()\n"
        "print('up', flush=True)\n"
        "signal.pause()"
    )
    with python_in(group, script) as process:
        assert reads_line(process) == b"up\n"
        assert len(group.pids()) == 301
        assert process.pid in group.pids()
        group.kill()
        group.wait_empty(timeout_s=20)


# Statistics


def test_statistics_count_memory_by_kind_and_cpu_time(
    host: CgroupHost, group: Cgroup, tmp_path: Path
) -> None:
    hierarchy_with(host, "memory")
    script = (
        "import sys, time\n"
        "anonymous = bytearray(b'x' * (48 << 20))\n"
        "open(sys.argv[1], 'wb').write(anonymous[:24 << 20])\n"
        "end = time.process_time() + 0.3\n"
        "while time.process_time() < end: pass\n"
        "print('up', flush=True)\n"
        "time.sleep(60)"
    )
    with python_in(group, script, str(tmp_path / "file")) as process:
        assert reads_line(process) == b"up\n"
        statistics = group.statistics()
    assert statistics.memory_bytes is not None and statistics.memory_bytes > 70 * MIB
    assert statistics.memory_anon_bytes is not None and 48 * MIB <= statistics.memory_anon_bytes < 64 * MIB
    assert statistics.memory_file_bytes is not None and statistics.memory_file_bytes >= 24 * MIB
    assert statistics.cpu_us is not None and statistics.cpu_us >= 300_000
    assert statistics.cpu_user_us is not None and statistics.cpu_system_us is not None
    assert statistics.cpu_user_us + statistics.cpu_system_us == pytest.approx(statistics.cpu_us, abs=40_000)
    assert statistics.pids == 1


def test_statistics_count_bytes_written_to_disk(host: CgroupHost, group: Cgroup, tmp_path: Path) -> None:
    hierarchy_with(host, "io")
    # In v1 the kernel counts only on disks that some group has a rate limit on.
    assert group.limit(Limits(io_write_bytes_per_s=1024 * MIB, io_device=_disk_of(tmp_path))) == ()
    script = (
        "import mmap, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DIRECT)\n"
        "os.write(fd, mmap.mmap(-1, 4 << 20))\n"
        "os.fsync(fd)\n"
    )
    with python_in(group, script, str(tmp_path / "file")) as process:
        process.communicate(timeout=60)
    assert process.returncode == 0
    written = group.statistics().io_written_bytes
    assert written is not None and 4 * MIB <= written < 6 * MIB


def test_statistics_of_a_new_group_are_zero_or_unknown(group: Cgroup) -> None:
    statistics = group.statistics()
    assert (statistics.pids, statistics.oom_kills) == (0, 0)
    assert statistics.cpu_us == 0
    assert statistics.memory_peak_bytes in (0, None)


def test_statistics_of_a_group_that_is_not_there_are_an_error(host: CgroupHost, parent: str) -> None:
    with pytest.raises(KernelError, match=r"read statistics of cgroup .*ENOENT"):
        host.group(f"{parent}/none").statistics()
