"""Whatever an owner was doing when it was killed, the next Host removes all it left, and nothing of the living."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import leftovers
import pytest
from toolbox import PAGE, get

from webserv_rt.host import Host
from webserv_rt.storage.pool import Pool

# Does everything an owner can do, over and over, in several threads, and never cleans up of its own accord.
OWNER = """
import random, sys, threading, time
from pathlib import Path
from webserv_rt.host import Host
pool, cgroup_parent, source, seed = sys.argv[1:]
host = Host(pool, n_networks=3, n_spares=1, cgroup_parent=cgroup_parent)
def use(number):
    chance = random.Random(f"{seed} {number}")
    while True:
        strategy = chance.choice(("cold", "standby"))
        instance = host.launch("toolbox", strategy=strategy)
        print(instance.incarnation.process.pid, flush=True)
        for _ in range(chance.randrange(4)):
            action = chance.randrange(4)
            if action == 0:
                instance.exec(["/bin/sh", "-c", "sleep 1000 & echo x > /var/lib/store/x; dd if=/dev/zero of=/x bs=1M count=4"])
            elif action == 1:
                instance.exec(["/bin/sleep", "0.01"], timeout_s=5)
            elif action == 2:
                instance.reset()
            else:
                instance.changes()
        if chance.random() < 0.7:
            instance.remove()
def bring_in():
    number = 0
    while True:
        number += 1
        host.import_base(source, f"brought-{number}")
        host.remove_base(f"brought-{number}")
threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
if seed.endswith("import"):
    threads.append(threading.Thread(target=bring_in))
for thread in threads:
    thread.start()
"""

N_KILLS = int(os.environ.get("WSRT_SOAK_ROUNDS", "12"))


@contextmanager
def owner(pool: Pool, cgroup_parent: str, source: Path, seed: str) -> Iterator[subprocess.Popen[str]]:
    """Run an owner for the length of the block, then kill it."""
    command = [sys.executable, "-c", OWNER, str(pool.path), cgroup_parent, str(source), seed]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def first_pid(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return int(line)


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_all_that_an_owner_killed_at_any_time_leaves_is_removed_by_the_next_host(
    pool: Pool, toolbox: str, cgroup_parent: str, toolbox_root: Path
) -> None:
    scope = leftovers.Scope((pool.path,), cgroup_parent)
    before = leftovers.take(scope)
    chance = random.Random()
    n_processes = 0
    for number in range(N_KILLS):
        seed = f"{chance.random()} {'import' if number % 3 == 0 else ''}"
        pause_s = chance.random() * (0.8 if number % 2 else 0.2)
        with owner(pool, cgroup_parent, toolbox_root, seed) as process:
            if number % 4:
                first_pid(process)
            time.sleep(pause_s)
        with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
            n_processes += host.collected.n_processes
            for base in host.bases():
                if base.name.startswith("brought"):
                    base.verify()
                    host.remove_base(base.name)
            with host.launch(toolbox) as instance:
                assert get(instance) == (200, PAGE)
        leftovers.require_none(scope, before, f"killed after {pause_s:.3f} s (seed {seed})")
    assert n_processes > 0


def test_what_belongs_to_the_living_is_not_touched(
    pool: Pool, cgroup_parent: str, toolbox_root: Path, host: Host
) -> None:
    with host.launch("toolbox") as instance:
        name = instance.incarnation.name
        for _ in range(2):
            with (
                owner(pool, cgroup_parent, toolbox_root, "1") as living,
                owner(pool, cgroup_parent, toolbox_root, "2") as dying,
            ):
                first_pid(living)
                first_pid(dying)
                dying.send_signal(signal.SIGKILL)
                dying.wait()
                with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as other:
                    assert len(other.collected.owners) == 1
                assert living.poll() is None
                first_pid(living)
                assert get(instance) == (200, PAGE)
                assert instance.incarnation.name == name
            with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as other:
                assert len(other.collected.owners) == 1


def test_processes_of_a_killed_owner_go_on_until_somebody_collects(
    pool: Pool, toolbox: str, cgroup_parent: str, toolbox_root: Path
) -> None:
    with owner(pool, cgroup_parent, toolbox_root, "1") as process:
        first_pid(process)
        time.sleep(0.3)
    with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
        assert len(host.collected.owners) == 1
        assert host.collected.n_processes > 0
    with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
        assert host.collected.owners == ()


def test_collectors_at_work_at_once_do_not_disturb_each_other(
    pool: Pool, toolbox: str, cgroup_parent: str, toolbox_root: Path
) -> None:
    with ExitStack() as owners:
        for seed in ("1", "2", "3"):
            first_pid(owners.enter_context(owner(pool, cgroup_parent, toolbox_root, seed)))
    script = (
        "import sys; from webserv_rt.host import Host\n"
        "with Host(sys.argv[1], n_networks=1, cgroup_parent=sys.argv[2]) as host: print(len(host.collected.owners))"
    )
    command = [sys.executable, "-c", script, str(pool.path), cgroup_parent]
    collectors = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [collector.communicate()[0] for collector in collectors]
    assert [collector.returncode for collector in collectors] == [0] * 4
    assert sum(map(int, outputs)) == 3


def test_gc_command_removes_what_killed_owners_left_and_says_so(
    pool: Pool, toolbox: str, cgroup_parent: str, toolbox_root: Path
) -> None:
    """Wherever their control groups are."""
    with owner(pool, cgroup_parent, toolbox_root, "1") as process:
        pid = first_pid(process)
    program = Path(sys.executable).with_name("webserv-rt")
    command = [str(program), "gc", "--pool", str(pool.path), "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert len(result["owners"]) == 1
    assert not is_alive(pid)
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert result["owners"] == []


def test_base_that_a_killed_owner_used_can_be_removed(
    pool: Pool, cgroup_parent: str, toolbox_root: Path, toolbox: str, tmp_path: Path
) -> None:
    """Its hold on the base is gone with it, though processes of its instances are still there."""
    with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
        with owner(pool, cgroup_parent, toolbox_root, "1") as process:
            first_pid(process)
            with pytest.raises(Exception, match="in use"):
                host.remove_base(toolbox)
        assert [base.name for base in host.bases()].count(toolbox) == 1
    with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
        assert len(host.collected.owners) == 1


def test_what_cannot_be_collected_keeps_nobody_from_working(
    pool: Pool, cgroup_parent: str, toolbox: str
) -> None:
    program = f"""
import os, subprocess
from webserv_rt.host import Host
host = Host({str(pool.path)!r}, n_networks=1, cgroup_parent={cgroup_parent!r})
host.launch("toolbox")
os.mkdir(host.owner.path / "mounted")
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", host.owner.path / "mounted"], check=True)
print(host.owner.path / "mounted", flush=True)
os.kill(os.getpid(), 9)
"""
    killed = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    mounted = killed.stdout.strip()
    command = [str(Path(sys.executable).with_name("webserv-rt")), "gc", "--pool", str(pool.path)]
    try:
        with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
            assert host.collected.n_processes > 0
            assert [mounted.removesuffix("/mounted") in left for left in host.collected.left] == [True]
            with host.launch(toolbox) as instance:
                assert get(instance) == (200, PAGE)
        failed = subprocess.run(command, capture_output=True, text=True)
        assert failed.returncode == 1
        assert "not removed" in failed.stderr
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert "removed 1 dead owners" in subprocess.run(command, capture_output=True, text=True).stdout
