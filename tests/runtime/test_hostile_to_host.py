"""What a hostile instance could make its host wait for, run out of, or let it see."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import toolbox as box
from conftest import NewBase
from toolbox import python, sh

from webserv_rt.command import CommandTimeout
from webserv_rt.errors import WebservError
from webserv_rt.host import Host, StrategyName
from webserv_rt.instance import Instance
from webserv_rt.strategy import NotReady

LEASES: Final = """
import errno, fcntl, json, os
answers = []
for path in ("/var/lib/store/rows", "/opt/other", "/dev/stdout"):
    for kind, flags in ((fcntl.F_WRLCK, os.O_RDWR), (fcntl.F_RDLCK, os.O_RDONLY)):
        fd = os.open(path, flags)
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
            answers.append("leased")
        except OSError as error:
            answers.append(errno.errorcode[error.errno])
print(json.dumps(answers))
"""


def test_leases_that_would_let_the_host_wait_are_refused(instance: Instance) -> None:
    assert json.loads(python(instance, LEASES).stdout) == ["EINVAL"] * 6


def test_log_leased_by_its_service_can_be_read_at_once(host: Host, new_base: NewBase) -> None:
    lease = "import fcntl; fcntl.fcntl(1, fcntl.F_SETLEASE, fcntl.F_WRLCK)"
    command = ["/bin/sh", "-c", f"/usr/bin/python3 -ISsc '{lease}'; exec /bin/httpd -f -p 80 -h /srv/www"]
    base = new_base(box.SITE.replace(box.WEB, json.dumps(command)))
    with host.launch(base) as instance:
        began = time.monotonic()
        assert "Invalid argument" in instance.logs("web")
        assert time.monotonic() - began < 5


@pytest.fixture
def shared_mount(tmp_path: Path) -> Iterator[Path]:
    """A mount that tells its copies of what is mounted in it, as all of a systemd host's do."""
    target = tmp_path / "shared"
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "shared", str(target)], check=True)
    subprocess.run(["mount", "--make-shared", str(target)], check=True)
    yield target
    subprocess.run(["umount", "--recursive", "--lazy", str(target)], check=True)


def test_what_the_host_mounts_later_does_not_appear_inside(
    host: Host, new_base: NewBase, shared_mount: Path
) -> None:
    later = shared_mount / "later"
    later.mkdir()
    base = new_base(box.SITE + f'\n[[mounts]]\nsource = "{shared_mount}"\ntarget = "/shared"\n')
    with host.launch(base) as instance:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "later", str(later)], check=True)
        (later / "secret").write_text("of the host")
        assert sh(instance, "ls -A /shared/later") == ""
        subprocess.run(["umount", str(later)], check=True)


PAIRS: Final = """
import errno, json, socket
answers = {}
for family in range(1, 46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        try:
            socket.socketpair(family, kind)
            answers[family] = "made"
        except OSError as error:
            answers[family] = errno.errorcode[error.errno]
print(json.dumps(answers))
"""


def test_socket_pairs_are_of_unix_alone(instance: Instance) -> None:
    answers = json.loads(python(instance, PAIRS).stdout)
    assert answers.pop("1") == "made"
    assert set(answers.values()) == {"EAFNOSUPPORT"}


# Answers a request with one piece of a page, said to have %d bytes, and goes on sending.
ENDLESS: Final = """
import socket
listener = socket.create_server(("127.0.0.1", 80))
while True:
    connection, _ = listener.accept()
    try:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n%d\\r\\n")
        while True:
            connection.sendall(bytes(1 << 20))
    except OSError:
        pass
"""


@pytest.mark.parametrize(
    ("n_bytes", "reason"),
    [(-1, "more than 32 MiB|timed out"), (-5, "negative"), (1 << 60, "does not contain|timed out")],
)
@pytest.mark.parametrize("strategy", ["cold", "standby"])
def test_page_without_end_fills_neither_memory_nor_time(
    host: Host, new_base: NewBase, strategy: StrategyName, n_bytes: int, reason: str
) -> None:
    command = ["/usr/bin/python3", "-ISsc", ENDLESS % n_bytes]
    site = box.SITE.replace(box.WEB, json.dumps(command)).replace("timeout_s = 30", "timeout_s = 1.5")
    base = new_base(site)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(NotReady, match=reason):
        host.launch(base, strategy=strategy)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


THIEVES: Final = """
import os
output = os.open("/proc/self/fd/2", os.O_RDONLY)
for _ in range(3):
    if os.fork() == 0:
        while True:
            os.read(output, 1)
while True:
    os.write(2, b"x")
    os.write(1, bytes(4096))
"""


def test_output_taken_away_by_another_reader_inside_holds_nobody_up(instance: Instance) -> None:
    """A pipe can be opened again by its name in /proc, to be read as well."""

    def run() -> None:
        with pytest.raises((CommandTimeout, WebservError)):
            python(instance, THIEVES, timeout_s=2)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(15)
    try:
        assert not thread.is_alive()
    finally:
        instance.reset()
        thread.join()


# Take what there is to be had, 100 at most, print how much that was; with a second argument go on for ever.
TAKE: Final = """
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None)
def inotify():
    return libc.inotify_init1(0) >= 0
def signals():
    return libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1)) == 0
take = {"inotify": inotify, "signals": signals}[sys.argv[1]]
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
n = 0
while n < 100 and take():
    n += 1
print(n, flush=True)
while len(sys.argv) > 2:
    while take():
        pass
    time.sleep(0.01)
"""


@pytest.mark.parametrize("what", ["inotify", "signals"])
@pytest.mark.parametrize("user", ["root", "visitor"])
def test_what_the_kernel_counts_by_user_is_used_up_for_oneself_alone(
    host: Host, instance: Instance, what: str, user: str
) -> None:
    """The kernel counts it for the owner of a user namespace too, and for all that he owns together."""
    greedy = threading.Thread(target=run_until_reset, args=(instance, user, what))
    greedy.start()
    try:
        deadline = time.monotonic() + 30
        while int(python(instance, TAKE, what, user=user).stdout) > 50:
            assert time.monotonic() < deadline
        with host.launch("toolbox") as other:
            assert int(python(other, TAKE, what, user=user).stdout) == 100
        command = ["/usr/bin/python3", "-c", TAKE, what]
        assert int(subprocess.run(command, capture_output=True, check=True).stdout) == 100
    finally:
        instance.reset()
        greedy.join()
    assert int(python(instance, TAKE, what, user=user).stdout) == 100


def run_until_reset(instance: Instance, user: str, what: str) -> None:
    with suppress(WebservError):
        python(instance, TAKE, what, "for ever", user=user, timeout_s=600)


TERMINALS: Final = """
import os
n = 0
try:
    while True:
        os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        n += 1
except OSError as error:
    print(n, error.strerror)
"""


def test_terminals_leave_the_others_theirs(instance: Instance) -> None:
    """The kernel has 3072 for all that is not the host's own."""
    assert python(instance, TERMINALS).stdout == b"64 No space left on device\n"


def test_paths_of_the_hosts_images_are_not_told(instance: Instance) -> None:
    assert list(Path("/sys/block").glob("loop*/loop/backing_file"))
    assert sh(instance, "cat /sys/block/*/loop/backing_file 2>/dev/null; true") == ""


# Print how many bytes connections take that nobody reads from.
UNREAD: Final = """
import socket
listener = socket.create_server(("127.0.0.1", 81))
kept, n_bytes = [], 0
while len(kept) < 800 and n_bytes < 512 << 20:
    kept.append(socket.create_connection(("127.0.0.1", 81)))
    kept.append(listener.accept()[0])
    for connection in kept[-2:]:
        connection.setblocking(False)
        try:
            while True:
                n_bytes += connection.send(bytes(1 << 20))
        except BlockingIOError:
            pass
print(n_bytes)
"""


def test_buffers_of_connections_count_as_memory(instance: Instance) -> None:
    """What all of them hold together is limited for the whole host (net.ipv4.tcp_mem)."""
    limit = instance.incarnation.template.profile.limits.memory_bytes
    assert limit is not None
    result = python(instance, UNREAD)
    # Killed for it, where it counts as any other memory.
    assert result.status == 137 or int(result.stdout) < limit


@pytest.mark.parametrize(("uid", "gid", "named"), [(65536, 0, 65536), (0, 2**32 - 2, 2**32 - 2)])
def test_base_whose_root_belongs_to_an_id_that_no_instance_has_is_refused(
    host: Host, new_base: NewBase, tmp_path: Path, uid: int, gid: int, named: int
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    box.make_root(root)
    os.chown(root, uid, gid)
    with pytest.raises(WebservError, match=f"the root directory of base .*: an instance has .* not {named}"):
        host.launch(new_base(box.SITE, root))


def test_command_of_more_than_a_plan_holds_is_refused_by_size(instance: Instance) -> None:
    with pytest.raises(OSError, match=r"hand over plan on .* bytes, 4194304 at most: E2BIG"):
        instance.exec(["/bin/echo", "x" * (5 << 20)])
