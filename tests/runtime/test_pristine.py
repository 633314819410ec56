"""After a reset nothing is left of what was before: files, processes, memory, names; round after round."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import toolbox as box
from toolbox import get, python, sh

from webserv_rt.bench.census import growth, take_census
from webserv_rt.errors import WebservError
from webserv_rt.host import Host, StrategyName
from webserv_rt.instance import Instance
from webserv_rt.storage.difference import diff
from webserv_rt.storage.entry import Entry
from webserv_rt.storage.pool import Pool
from webserv_rt.storage.scan import scan_tree

# Three resets each. `make soak` sets it.
N_ROUNDS = int(os.environ.get("WSRT_SOAK_ROUNDS", "70"))

# Of the census, what is not the whole machine's.
OWN_COUNTS = ("descriptors", "threads", "pool_blocks", "pool_files")

KERNEL_MADE = ("proc", "sys", "dev", "usr")

# What a process sees of everything that is neither a file nor a process.
SURROUNDINGS = r"""
import os, socket
for path in ("sysvipc/msg", "sysvipc/sem", "sysvipc/shm", "net/unix", "net/tcp", "net/tcp6", "net/udp", "net/raw", "locks"):
    with open("/proc/" + path) as file:
        rows = [line.split() for line in file.readlines()[1:]]
    # A server's own connections end by themselves: only what listens is told.
    if path.startswith("net/tcp"):
        rows = [row[1] for row in rows if row[3] == "0A"]
    if path == "net/unix":
        rows = [row[7:] for row in rows]
    if path == "locks":
        rows = []
    print(path, sorted(map(str, rows)))
print(sorted(os.listdir("/dev")), sorted(os.listdir("/dev/shm")), sorted(os.listdir("/dev/pts")))
print(socket.gethostname(), os.getloadavg and "", os.umask(0o22), sorted(os.environ.items()))
print(os.getrlimits() if hasattr(os, "getrlimits") else "")
with open("/proc/self/mountinfo") as file:
    print(sorted((line.split()[4], line.split()[5]) for line in file))
with open("/proc/1/cgroup") as file:
    print(file.read())
"""

# Leaves as much as it can, everywhere.
MESS = r"""
import ctypes, mmap, os, random, signal, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
chance = random.Random(int(sys.argv[1]))
for key in (1, 2, 3):
    identifier = libc.shmget(key, 65536, 0o1666)
    address = libc.shmat(identifier, None, 0)
    libc.semget(key, 4, 0o1666)
    libc.msgsnd(libc.msgget(key, 0o1666), b"\1\0\0\0\0\0\0\0evil", 4, 0)
with open("/dev/shm/evil", "wb") as file:
    file.write(b"evil" * 10000)
try:
    libc.mq_open(b"/evil", os.O_CREAT | os.O_RDWR, 0o666, None)
except AttributeError:
    pass
for name in ("\0evil", "/tmp/evil.socket", "/run/evil.socket"):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    listener.set_inheritable(True)
for port in (81, 8080, 3306):
    listener = socket.create_server(("127.0.0.1", port))
    listener.set_inheritable(True)
for directory, names, files in os.walk("/"):
    names[:] = [name for name in names if os.path.join(directory, name) not in ("/proc", "/sys", "/dev", "/usr", "/bin")]
    for name in files:
        path = os.path.join(directory, name)
        action = chance.randrange(6)
        if action == 0:
            os.unlink(path)
        elif action == 1 and os.path.isfile(path) and not os.path.islink(path):
            with open(path, "ab") as file:
                file.write(b"evil")
        elif action == 2:
            os.chown(path, 1000, 1000, follow_symlinks=False)
        elif action == 3 and not os.path.islink(path):
            os.chmod(path, 0o777)
        elif action == 4:
            os.rename(path, path + ".evil")
    for number in range(chance.randrange(3)):
        with open(os.path.join(directory, f"evil{number}"), "wb") as file:
            file.write(b"evil" * chance.randrange(20000))
    if chance.random() < 0.3:
        os.makedirs(os.path.join(directory, "evil/evil"), exist_ok=True)
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pause()
"""


def files(instance: Instance) -> list[Entry]:
    """All files with the ids that the instance sees, which are others on the host after every reset."""
    first = instance.incarnation.root_id
    return [
        entry._replace(uid=entry.uid - first, gid=entry.gid - first)
        for entry in scan_tree(instance.root, exclude=KERNEL_MADE)
    ]


def processes(instance: Instance) -> Counter[str]:
    """The command lines in the instance, without those that serve one connection and end."""
    found: Counter[str] = Counter()
    for pid in instance.incarnation.cgroup.pids():
        with suppress(OSError):
            found[Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()] += 1
    return found


def settled_processes(instance: Instance) -> Counter[str]:
    deadline = time.monotonic() + 2
    while (found := processes(instance)).total() > 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def surroundings(instance: Instance) -> str:
    result = python(instance, SURROUNDINGS)
    assert result.status == 0, result.stderr.decode()
    return result.stdout.decode()


def require_pristine(instance: Instance, start: list[Entry], around: str) -> None:
    assert list(map(str, diff(start, files(instance)))) == []
    assert settled_processes(instance) == {"wsrt-init": 1, "/bin/httpd -f -p 80 -h /srv/www": 1}
    assert surroundings(instance) == around
    assert get(instance) == (200, box.PAGE)
    assert not instance.changes()


@pytest.mark.parametrize("strategy", ["cold", "standby"])
def test_nothing_that_a_mess_maker_leaves_survives_a_reset(host: Host, strategy: StrategyName) -> None:
    with host.launch("toolbox", strategy=strategy) as instance:
        start, around = files(instance), surroundings(instance)
        assert len(start) > 300
        for number in range(N_ROUNDS // 5):
            made = python(instance, MESS, str(number))
            assert made.status == 0, made.stderr.decode()
            assert list(diff(start, files(instance)))
            assert surroundings(instance) != around
            if number % 2:
                instance.exec(["/bin/sh", "-c", "kill -9 -1"])
            instance.reset()
            require_pristine(instance, start, around)


def test_every_one_of_many_resets_under_load_is_pristine(host: Host) -> None:
    """Three instances, each written to and killed in at random while all are reset in turn."""
    instances = [host.launch("toolbox", strategy=strategy) for strategy in ("cold", "standby", "cold")]
    start, around = files(instances[0]), surroundings(instances[0])
    is_over = threading.Event()

    def spoil(instance: Instance, seed: int) -> None:
        chance = random.Random(seed)
        while not is_over.is_set():
            with suppress(WebservError, OSError, AssertionError):
                if chance.random() < 0.5:
                    python(instance, MESS, str(chance.randrange(1000)), timeout_s=10)
                else:
                    sh(instance, "kill -9 -1; echo x > /opt/evil; rm -r /var/lib/store/*", timeout_s=10)
            time.sleep(chance.random() / 20)

    watched = instances[0]
    spoilers = [
        threading.Thread(target=spoil, args=(other, seed)) for seed, other in enumerate(instances[1:])
    ]
    for thread in spoilers:
        thread.start()
    try:
        for number in range(N_ROUNDS):
            python(watched, MESS, str(number))
            for instance in instances:
                instance.reset()
            require_pristine(watched, start, around)
    finally:
        is_over.set()
        for thread in spoilers:
            thread.join()
    for instance in instances:
        instance.reset()
        require_pristine(instance, start, around)


def test_memory_of_the_state_before_is_not_to_be_found(instance: Instance) -> None:
    """Neither in files nor in fresh pages."""
    marker = "the-marker-of-the-state-before"
    sh(
        instance,
        f"for i in $(seq 500); do echo {marker}; done > /opt/text; sync; cp /opt/text /dev/shm/; rm /opt/text",
    )
    instance.reset()
    sh(instance, "truncate -s 4M /opt/hole; fallocate -l 4194304 /opt/room")
    for path in ("/opt/hole", "/opt/room"):
        assert instance.exec(["grep", "-q", marker, path]).status == 1
    script = f"""
import mmap
pages = mmap.mmap(-1, 64 << 20)
print(pages.find({marker.encode()!r}))
"""
    assert python(instance, script).stdout == b"-1\n"


def test_base_is_as_sealed_after_all_of_it(host: Host, instance: Instance) -> None:
    assert python(instance, MESS, "1").status == 0
    instance.reset()
    host.base("toolbox").verify()


def test_host_that_is_closed_has_given_back_every_block_and_file_of_the_pool(
    pool: Pool, cgroup_parent: str, toolbox: str
) -> None:
    strategies: tuple[StrategyName, ...] = ("cold", "standby")

    def use() -> None:
        with Host(pool.path, n_networks=2, cgroup_parent=cgroup_parent) as host:
            for strategy in strategies:
                instances = [host.launch(toolbox, strategy=strategy) for _ in range(4)]
                for number, instance in enumerate(instances):
                    assert python(instance, MESS, str(number)).status == 0
                    instance.reset()

    use()  # directories and the file system's own trees have their lasting size after it
    before = {name: take_census(pool.path)[name] for name in OWN_COUNTS}
    use()
    after = {name: take_census(pool.path)[name] for name in OWN_COUNTS}
    assert growth(before, after) == {}
