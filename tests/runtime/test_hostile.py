"""A hostile process inside: what it may not do, and that what it does do harms nobody and is gone after a reset."""

from __future__ import annotations

import json
import os
import platform
import socket
import stat
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
from toolbox import get, python, sh

from webserv_rt.errors import WebservError
from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.strategy import NotReady

# Printed as JSON: which of the calls the kernel let through. Numbers are those of x86-64.
CALLS: Final = r"""
import ctypes, errno, json, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
P = ctypes.c_char_p
NULL = ctypes.c_void_p(0)
results = {}
def call(name, number, *arguments):
    ctypes.set_errno(0)
    results[name] = errno.errorcode[ctypes.get_errno()] if libc.syscall(number, *arguments) < 0 else "done"
def attempt(name, function):
    try:
        function()
        results[name] = "done"
    except OSError as error:
        results[name] = errno.errorcode[error.errno]
os.makedirs("/tmp/m", exist_ok=True)
AT_FDCWD = -100
call("mount tmpfs", 165, P(b"tmpfs"), P(b"/tmp/m"), P(b"tmpfs"), 0, NULL)
call("mount proc", 165, P(b"proc"), P(b"/tmp/m"), P(b"proc"), 0, NULL)
call("bind mount", 165, P(b"/usr"), P(b"/tmp/m"), NULL, 4096, NULL)
call("remount /usr read-write", 165, NULL, P(b"/usr"), NULL, 32 | 4096, NULL)
call("remount / read-write", 165, NULL, P(b"/"), NULL, 32, NULL)
call("umount /proc/sysrq-trigger", 166, P(b"/proc/sysrq-trigger"), 2)
call("umount /usr", 166, P(b"/usr"), 2)
call("pivot_root", 155, P(b"."), P(b"."))
call("open_tree", 428, AT_FDCWD, P(b"/"), 1)
call("move_mount", 429, AT_FDCWD, P(b"/usr"), AT_FDCWD, P(b"/tmp/m"), 0)
call("fsopen", 430, P(b"tmpfs"), 0)
call("fsconfig", 431, 0, 0, NULL, NULL, 0)
call("fsmount", 432, 0, 0, 0)
call("fspick", 433, AT_FDCWD, P(b"/"), 0)
call("mount_setattr", 442, AT_FDCWD, P(b"/usr"), 0, P(struct.pack("4Q", 0, 1, 0, 0)), 32)
for name, flag in dict(user=0x10000000, mnt=0x20000, net=0x40000000, pid=0x20000000, ipc=0x8000000, uts=0x4000000,
                       cgroup=0x2000000, time=0x80).items():
    call(f"unshare {name}", 272, flag)
    if name != "time":
        ctypes.set_errno(0)
        pid = libc.syscall(56, flag | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        results[f"clone {name}"] = errno.errorcode[ctypes.get_errno()] if pid < 0 else "done"
call("clone3", 435, P(struct.pack("11Q", 0x10000000, *[0] * 10)), 88)
for name in os.listdir("/proc/self/ns"):
    fd = os.open(f"/proc/self/ns/{name}", os.O_RDONLY)
    call(f"setns {name}", 308, fd, 0)
call("bpf", 321, 5, P(bytes(128)), 128)
call("perf_event_open", 298, P(struct.pack("2I", 0, 112) + bytes(104)), 0, -1, -1, 0)
call("userfaultfd", 323, 0)
call("name and open by handle", 304, AT_FDCWD, P(struct.pack("2I", 8, 1) + bytes(8)), 0)
call("add_key", 248, P(b"user"), P(b"wsrt-test"), P(b"x"), 1, -3)
call("request_key", 249, P(b"user"), P(b"wsrt-test"), NULL, 0)
call("keyctl", 250, 0, -3, 1)
call("io_uring_setup", 425, 4, P(bytes(120)))
call("io_uring_enter", 426, 0, 0, 0, 0, NULL, 0)
call("io_setup", 206, 1, P(bytes(8)))
call("kexec_load", 246, 0, 0, NULL, 0)
call("reboot", 169, 0xfee1dead, 672274793, 0x01234567, NULL)
call("init_module", 175, P(b"x"), 1, P(b""))
call("finit_module", 313, 0, P(b""), 0)
call("delete_module", 176, P(b"xfs"), 0)
call("swapon", 167, P(b"/tmp/m"), 0)
call("acct", 163, P(b"/tmp/m"))
call("quotactl", 179, 0x800007 << 8, P(b"/"), 0, P(bytes(64)))
call("quotactl_fd", 443, os.open("/", os.O_RDONLY), 0x800007 << 8, 0, P(bytes(64)))
call("syslog", 103, 3, P(bytes(64)), 64)
call("settimeofday", 164, P(struct.pack("2q", 0, 0)), NULL)
call("clock_settime", 227, 0, P(struct.pack("2q", 0, 0)))
call("adjtimex", 159, P(bytes(208)))
call("process_vm_readv", 310, 1, NULL, 0, NULL, 0, 0)
call("process_vm_writev", 311, 1, NULL, 0, NULL, 0, 0)
call("kcmp", 312, 1, 1, 0, 0, 0)
call("pidfd_getfd", 438, 0, 0, 0)
call("iopl", 172, 3)
call("ioperm", 173, 0, 1, 1)
call("modify_ldt", 154, 0, P(bytes(16)), 16)
call("x32 getpid", 0x40000000 | 39)
call("sethostname", 170, P(b"evil"), 4)
call("vhangup", 153)
attempt("mknod a disk", lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(7, 0)))
attempt("mknod a disk in a data directory", lambda: os.mknod("/var/lib/store/disk", 0o60600, os.makedev(7, 0)))
attempt("mknod memory", lambda: os.mknod("/tmp/mem", 0o20600, os.makedev(1, 1)))
attempt("mknod in /dev", lambda: os.mknod("/dev/kmsg", 0o20600, os.makedev(1, 11)))
attempt("better priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
attempt("real-time scheduling", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
for name, family, kind, protocol in [
    ("vsock", 40, socket.SOCK_STREAM, 0), ("packet", 17, socket.SOCK_RAW, 0x300), ("alg", 38, socket.SOCK_SEQPACKET, 0),
    ("raw", socket.AF_INET, socket.SOCK_RAW, 1), ("raw6", socket.AF_INET6, socket.SOCK_RAW, 58),
    ("bluetooth", 31, socket.SOCK_RAW, 1), ("xdp", 44, socket.SOCK_RAW, 0), ("key", 15, socket.SOCK_RAW, 2),
    ("kcm", 41, socket.SOCK_DGRAM, 0), ("tipc", 30, socket.SOCK_STREAM, 0), ("rds", 21, socket.SOCK_SEQPACKET, 0),
    ("nfc", 39, socket.SOCK_SEQPACKET, 1), ("qrtr", 42, socket.SOCK_DGRAM, 0), ("smc", 43, socket.SOCK_STREAM, 0),
]:
    attempt(f"{name} socket", lambda: socket.socket(family, kind, protocol).close())
for protocol in (2, 9, 10, 11, 12, 15, 16, 18, 20, 21):
    attempt(f"netlink {protocol}", lambda: socket.socket(16, socket.SOCK_RAW, protocol).close())
socket.socket(16, socket.SOCK_RAW, 0).close()
socket.socket(16, socket.SOCK_RAW, 4).close()
plain = socket.socket()
attempt("mark packets", lambda: plain.setsockopt(socket.SOL_SOCKET, 36, 7))
netlink = socket.socket(16, socket.SOCK_RAW, 0)
def add_link():
    netlink.bind((0, 0))
    body = struct.pack("BxHiII", 0, 0, 0, 0, 0) + struct.pack("HH4s", 8, 3, b"eth\0") + struct.pack("HH", 14, 18 | 0x8000)
    body += struct.pack("HH5s3x", 9, 1, b"dummy")
    netlink.send(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
    code = struct.unpack_from("i", netlink.recv(4096), 16)[0]
    if code:
        raise OSError(-code, "")
attempt("add a network link", add_link)
def set_up(flags):
    import fcntl
    fcntl.ioctl(plain, 0x8914, struct.pack("16sH14x", b"lo", flags))
attempt("take loopback down", lambda: set_up(0))
def type_into_terminal():
    import fcntl, pty
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, 0x5412, b"x")
attempt("type into a terminal", type_into_terminal)
print(json.dumps(results))
"""
REFUSED: Final = {"EPERM", "ENOSYS", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "EROFS"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the system call numbers are those of x86-64")
@pytest.mark.parametrize("user", ["root", "visitor"])
def test_calls_that_reach_beyond_an_instance_are_refused(instance: Instance, user: str) -> None:
    result = python(instance, CALLS, user=user)
    assert result.status == 0, result.stderr.decode()
    answers: dict[str, str] = json.loads(result.stdout)
    assert len(answers) > 90
    assert {call: answer for call, answer in answers.items() if answer not in REFUSED} == {}
    for absent in ("io_uring_setup", "io_setup", "clone3"):
        assert answers[absent] == "ENOSYS", "programs fall back from this only when it is not there"


def test_inside_capabilities_are_few_and_new_privileges_are_none(instance: Instance) -> None:
    for source in ("/proc/self/status", "/proc/1/status"):
        status = dict(
            line.split(":\t", 1) for line in sh(instance, f"cat {source}").splitlines() if ":\t" in line
        )
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        kept = int(status["CapBnd"], 16)
        assert kept == int(status["CapPrm"], 16) | kept
        # Of all, these alone: CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT.
        assert kept == sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18))
    assert int(sh(instance, "grep CapEff /proc/self/status", user="visitor").split()[1], 16) == 0
    host_uid = Path(f"/proc/{instance.incarnation.process.pid}").stat().st_uid
    assert host_uid >= 0x70000000


def test_setuid_programs_give_no_privileges(host: Host, new_base: NewBase, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    box.make_root(root)
    (root / "opt/who").write_bytes(Path("/usr/bin/id").read_bytes())
    (root / "opt/who").chmod(0o6755)
    base = new_base(box.SITE, root)
    with host.launch(base) as instance:
        assert stat.S_IMODE((instance.root / "opt/who").lstat().st_mode) == 0o6755
        assert sh(instance, "/opt/who -u; /opt/who -g", user="visitor") == "1000\n1000\n"
        sh(instance, "cp /bin/busybox /tmp/own; chmod 6755 /tmp/own")
        assert "euid" not in sh(
            instance, "cp /opt/who /tmp/who; chmod 6755 /tmp/who; /tmp/who", user="visitor"
        )


WRITABLE: Final = r"""
import json, os, stat, sys
found = []
for top in ("/proc", "/sys"):
    for directory, names, files in os.walk(top):
        if top == directory:
            names[:] = [name for name in names if not name.isdigit() and name not in ("self", "thread-self")]
        for name in files:
            path = os.path.join(directory, name)
            if os.path.islink(path):
                continue
            try:
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                continue
            status = os.fstat(fd)
            # Masked ones are the null device.
            if not (stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(1, 3)):
                found.append(path)
            os.close(fd)
print(json.dumps(found))
"""


@pytest.mark.parametrize("user", ["root", "visitor"])
def test_nothing_of_the_kernel_can_be_written_through_proc_and_sys(instance: Instance, user: str) -> None:
    result = python(instance, WRITABLE, user=user)
    assert result.status == 0, result.stderr.decode()
    assert json.loads(result.stdout) == []
    assert (
        "Read-only" in instance.exec(["/bin/sh", "-c", "echo 1 > /proc/sys/vm/drop_caches"]).stderr.decode()
    )
    assert instance.exec(["/bin/sh", "-c", "echo -1000 > /proc/self/oom_score_adj"]).status != 0


def test_what_the_kernel_tells_about_the_host_is_masked(instance: Instance) -> None:
    for path in (
        "/proc/kcore",
        "/proc/keys",
        "/proc/timer_list",
        "/proc/kmsg",
        "/proc/kallsyms",
        "/proc/sysrq-trigger",
    ):
        assert sh(instance, f"head -c 100 {path} 2>/dev/null; true") == "", path
    for directory in ("/sys/firmware", "/sys/fs/cgroup", "/sys/kernel", "/proc/scsi", "/proc/acpi"):
        assert sh(instance, f"ls -A {directory} 2>/dev/null; true") == "", directory
    groups = sh(instance, "cat /proc/self/cgroup /proc/1/cgroup")
    assert instance.host.owner.id not in groups


def test_processes_see_each_other_and_none_outside(instance: Instance) -> None:
    seen = [int(pid) for pid in sh(instance, "ls /proc").split() if pid.isdigit()]
    assert 1 in seen
    assert len(seen) <= 5
    script = """
import os
for pid in range(2, 40000):
    if os.path.exists(f"/proc/{pid}"):
        continue
    try:
        os.kill(pid, 0)
        print("could signal", pid)
    except ProcessLookupError:
        pass
"""
    assert python(instance, script).stdout == b""


def test_killing_everything_ends_only_the_instance_itself(host: Host, instance: Instance) -> None:
    with host.launch("toolbox") as other, subprocess.Popen(["/bin/sleep", "1000"]) as outside:
        for user in ("visitor", "root"):
            with suppress(WebservError):
                instance.exec(["/bin/sh", "-c", "kill -9 -1; kill -9 1"], user=user)
        assert get(other) == (200, box.PAGE)
        assert outside.poll() is None
        outside.kill()
    instance.reset()
    assert get(instance) == (200, box.PAGE)


TRACER: Final = r"""
import ctypes, errno, os, time
libc = ctypes.CDLL(None, use_errno=True)
def attach(pid):
    ctypes.set_errno(0)
    return "attached" if libc.ptrace(16, pid, 0, 0) == 0 else errno.errorcode[ctypes.get_errno()]
print(*[pid for pid in range(2, 40000) if not os.path.exists(f"/proc/{pid}") and attach(pid) not in ("ESRCH", "EPERM")])
print(attach(1), flush=True)
open("/tmp/up", "w").close()
time.sleep(1000)
"""


def test_tracing_reaches_nothing_outside_and_does_not_keep_an_instance_from_its_end(
    instance: Instance,
) -> None:
    results: list[bytes] = []
    tracing = threading.Thread(target=lambda: results.append(python(instance, TRACER).stdout))
    tracing.start()
    deadline = time.monotonic() + 30
    while not (instance.root / "tmp/up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with suppress(WebservError):
        instance.exec(["/bin/true"], timeout_s=2)
    began = time.monotonic()
    instance.reset()
    instance.host.reaper.drain()
    assert time.monotonic() - began < 5
    tracing.join(10)
    assert not tracing.is_alive()
    assert results[0].splitlines()[0] == b""
    assert get(instance) == (200, box.PAGE)


# Files


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """A file of the host that everybody may read."""
    path = tmp_path / "secret"
    path.write_text("of the host")
    path.chmod(0o644)
    for directory in (tmp_path, *tmp_path.parents):
        if directory != Path("/") and not directory.stat().st_mode & 1:
            directory.chmod(directory.stat().st_mode | 0o011)
    yield path


ESCAPES: Final = r"""
import os, sys
secret = sys.argv[1]
tries = [secret, "/.." * 30 + secret]
for pid in os.listdir("/proc"):
    if pid.isdigit() or pid == "self":
        for link in ("root", "cwd"):
            tries.append(f"/proc/{pid}/{link}{secret}")
            tries.append(f"/proc/{pid}/{link}" + "/.." * 30 + secret)
        for fd in os.listdir(f"/proc/{pid}/fd") if os.access(f"/proc/{pid}/fd", os.R_OK) else []:
            tries.append(f"/proc/{pid}/fd/{fd}/" + "../" * 30 + secret[1:])
            tries.append(f"/proc/{pid}/fd/{fd}" + secret)
for number, place in enumerate(("/opt", "/var/lib/store", "/tmp", "/run", "/dev", "/dev/shm")):
    link = f"{place}/link{number}"
    os.symlink(secret, link)
    tries.append(link)
    os.symlink("../" * 30 + secret[1:], link + "r")
    tries.append(link + "r")
# The classic way out of a chroot.
os.makedirs("/tmp/jail", exist_ok=True)
top = os.open("/", os.O_RDONLY)
if os.fork() == 0:
    os.chroot("/tmp/jail")
    os.fchdir(top)
    for _ in range(30):
        os.chdir("..")
    os.chroot(".")
    os._exit(1 if os.path.exists(secret) else 0)
if os.wait()[1]:
    print("chroot")
for path in tries:
    if os.path.exists(path):
        print(path)
print("tried", len(tries))
"""


def test_files_of_the_host_cannot_be_reached(instance: Instance, secret: Path) -> None:
    assert secret.exists()
    result = python(instance, ESCAPES, str(secret))
    assert result.status == 0, result.stderr.decode()
    lines = result.stdout.decode().splitlines()
    assert lines[:-1] == []
    assert int(lines[-1].split()[1]) > 20
    assert "root:x:0:0:root:/root:/bin/sh\nvisitor" in sh(instance, "cat /proc/1/root/etc/passwd")
    assert sh(instance, "ls -A /root /home; ls /etc") == (
        "/home:\nvisitor\n\n/root:\ngroup\nhostname\nhosts\npasswd\n"
    )


def test_commands_and_services_have_three_descriptors_and_no_directory_or_socket_of_the_host(
    instance: Instance,
) -> None:
    own = sh(instance, "ls /proc/self/fd").split()
    assert own == ["0", "1", "2", "3"]  # 3 is the listing's own
    web = sh(instance, "pidof httpd").split()[0]
    for pid in (web, "1"):
        kinds = {}
        for fd in sh(instance, f"ls /proc/{pid}/fd").split():
            kinds[fd] = sh(instance, f"readlink /proc/{pid}/fd/{fd}").strip()
        assert pid == "1" or set(kinds) == {"0", "1", "2", "3"}
        for fd, target in kinds.items():
            if target.startswith("socket:"):
                assert (pid, fd) == (web, "3"), "only the server's own listening socket"
            else:
                assert target == "/dev/null" or target.endswith(".log"), target
    assert sh(instance, "for fd in /proc/1/fd/*; do test -d $fd && echo $fd; done; true") == ""


WATCHER: Final = r"""
import os, sys
secret = sys.argv[1]
open("/tmp/up", "w").close()
found = set()
while not os.path.exists("/tmp/over"):
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for fd in descriptors:
            link = f"/proc/{pid}/fd/{fd}"
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target == "/dev/null" or target.startswith(("pipe:", "/tmp", "/proc")) or target.endswith(".log"):
                continue
            found.add(target.split("[")[0])
            if os.path.exists(link + "/.." * 20 + secret):
                found.add("ESCAPE by " + target)
print("\n".join(sorted(found)))
"""


def test_commands_hold_nothing_of_the_host_while_they_start(instance: Instance, secret: Path) -> None:
    """Once it has the ids of the instance, root in there can look at the descriptors of what is being started."""
    seen: list[bytes] = []
    watching = threading.Thread(target=lambda: seen.append(python(instance, WATCHER, str(secret)).stdout))
    watching.start()
    while not (instance.root / "tmp/up").exists():
        time.sleep(0.01)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        instance.exec(["/bin/true"])
        instance.exec(["/bin/true"], timeout_s=5, user="visitor")
    sh(instance, "touch /tmp/over")
    watching.join()
    found = set(seen[0].decode().split("\n")) - {"", "socket:"}
    assert found == set()


def test_logs_of_the_other_services_cannot_be_written(host: Host, new_base: NewBase) -> None:
    base = new_base(
        f"""
        name = "two"
        port = 80
        [[services]]
        name = "web"
        command = {box.WEB}
        [[services]]
        name = "low"
        command = ["/bin/sh", "-c", "echo low; exec sleep 1000"]
        user = "visitor"
        [ready]
        http = "/"
        """
    )
    with host.launch(base) as instance:
        for fd in range(6):
            instance.exec(["/bin/sh", "-c", f"echo forged > /proc/1/fd/{fd}"], user="visitor")
        assert "forged" not in instance.logs()


def test_base_and_mounts_of_the_host_cannot_be_written(host: Host, instance: Instance) -> None:
    assert "Read-only" in instance.exec(["/bin/sh", "-c", "echo > /usr/evil"]).stderr.decode()
    assert not Path("/usr/evil").exists()
    script = """
import os
for directory, _, names in os.walk("/"):
    if directory.startswith(("/proc", "/sys", "/dev", "/usr")):
        continue
    for name in names:
        path = os.path.join(directory, name)
        if not os.path.islink(path) and path != "/bin/busybox":  # it runs
            with open(path, "r+b") as file:
                file.write(b"overwritten")
            os.chmod(path, 0o777)
"""
    assert python(instance, script).status == 0
    assert len(instance.changes().modified) > 5
    instance.reset()
    host.base("toolbox").verify()


@pytest.mark.parametrize("path", ["/opt/away/inner", "/opt/relative/deep", "/opt/away"])
def test_data_directory_behind_a_symbolic_link_is_refused(
    host: Host, new_base: NewBase, tmp_path: Path, path: str
) -> None:
    """An absolute link in a base would lead the host to its own files."""
    root = tmp_path / "root"
    root.mkdir()
    box.make_root(root)
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner/secret").write_text("of the host")
    (root / "opt/away").unlink()
    (root / "opt/away").symlink_to(outside)
    (root / "opt/relative").symlink_to("tree")
    base = new_base(box.SITE + f'\n[[data]]\npath = "{path}"\n', root)
    with pytest.raises(WebservError, match=f"data directory {path}: a symbolic link"):
        host.launch(base)


@pytest.mark.parametrize("target", ["/opt/away/inner", "/opt/other"])
def test_mount_target_that_is_no_directory_of_the_base_is_refused(
    host: Host, new_base: NewBase, target: str
) -> None:
    base = new_base(box.SITE + f'\n[[mounts]]\nsource = "/usr/share"\ntarget = "{target}"\n')
    with pytest.raises(WebservError, match="is not a directory: name the real path"):
        host.launch(base)


def test_missing_data_directory_and_mount_source_are_refused_by_name(host: Host, new_base: NewBase) -> None:
    with pytest.raises(WebservError, match="data directory /var/lib/none: the base has no such directory"):
        host.launch(new_base(box.SITE + '\n[[data]]\npath = "/var/lib/none"\n'))
    with pytest.raises(WebservError, match="mount source /no/such/place: No such file or directory"):
        host.launch(new_base(box.SITE + '\n[[mounts]]\nsource = "/no/such/place"\ntarget = "/mnt"\n'))


# Network

CONNECTIONS: Final = r"""
import socket, sys
port, name = int(sys.argv[1]), sys.argv[2]
def attempt(what, function):
    try:
        function()
        print(what)
    except OSError:
        pass
def tcp(family, address):
    with socket.socket(family) as connection:
        connection.settimeout(2)
        connection.connect(address)
def udp(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as connection:
        connection.connect(address)
        connection.send(b"x")
        connection.send(b"x")
for address in sys.argv[3:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    attempt(f"tcp {address}", lambda: tcp(family, (address, port)))
    attempt(f"udp {address}", lambda: udp(family, (address, port)))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\0" + name))
attempt("abstract datagram", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect("\0" + name + "d"))
attempt("name", lambda: socket.getaddrinfo("example.org", 80))
"""


def test_nothing_outside_can_be_connected_to(instance: Instance) -> None:
    name = f"wsrt-test-{os.getpid()}"
    with (
        socket.create_server(("0.0.0.0", 0)) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract_datagrams,
    ):
        port = listener.getsockname()[1]
        datagrams.bind(("0.0.0.0", port))
        datagrams.settimeout(0.2)
        abstract.bind(f"\0{name}")
        abstract.listen()
        abstract_datagrams.bind(f"\0{name}d")
        addresses = ["127.0.0.1", "::1", "8.8.8.8", "10.0.0.1", "169.254.169.254", "2001:4860:4860::8888"]
        addresses += subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
        result = python(instance, CONNECTIONS, str(port), name, *addresses)
        assert (result.stdout, result.stderr) == (b"", b"")
        with pytest.raises(TimeoutError):
            datagrams.recv(16)
    assert sh(instance, "cat /proc/net/route /proc/net/dev | grep -v -e Iface -e lo: -e '|'; true") == ""


EVENTS: Final = """
import socket
listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
listener.bind((0, 1))
listener.settimeout(1.5)
open("/tmp/up", "w").close()
print(listener.recv(4096))
"""


def test_events_of_the_hosts_devices_are_not_heard(instance: Instance) -> None:
    """The kernel tells them to every network namespace that the host's user namespace owns, as these are."""
    results: list[bytes] = []
    listening = threading.Thread(target=lambda: results.append(python(instance, EVENTS).stdout))
    listening.start()
    deadline = time.monotonic() + 1
    while not (instance.root / "tmp/up").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    Path("/sys/class/mem/null/uevent").write_text("change")
    listening.join()
    assert results == [b""]


def test_instances_do_not_reach_each_other(host: Host, instance: Instance) -> None:
    with host.launch("toolbox") as other:
        sh(other, "echo other > /srv/www/index.html; echo > /dev/shm/other; (httpd -f -p 81 -h /srv/www &)")
        assert "at your service" in sh(instance, "wget -q -O - http://127.0.0.1/")
        assert instance.exec(["wget", "-q", "-O", "-", "http://127.0.0.1:81/"]).status != 0
        assert sh(instance, "ls /dev/shm") == ""
        assert sh(instance, "cat /srv/www/index.html") == box.PAGE


# Resources


def is_answered_soon(instance: Instance) -> None:
    began = time.monotonic()
    assert get(instance) == (200, box.PAGE)
    assert time.monotonic() - began < 10


def run_aside(instance: Instance, arguments: list[str]) -> threading.Thread:
    def run() -> None:
        with suppress(WebservError, OSError):
            instance.exec(arguments)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_fork_bomb_stays_in_its_instance_and_ends_with_a_reset(host: Host, instance: Instance) -> None:
    with host.launch("toolbox") as other:
        bomb = run_aside(instance, ["/bin/sh", "-c", "f() { f | f & }; f; sleep 1000"])
        limit = instance.incarnation.template.profile.limits.pids
        assert limit is not None
        deadline = time.monotonic() + 60
        while len(instance.incarnation.cgroup.pids()) < limit // 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        is_answered_soon(other)
        assert len(instance.incarnation.cgroup.pids()) <= limit + 2
        instance.statistics()
        with suppress(WebservError, OSError):
            instance.exec(["/bin/true"])
        for _ in range(3):
            instance.reset()
            is_answered_soon(instance)
        bomb.join(10)
        assert not bomb.is_alive()


ROVERS: Final = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork():
                os._exit(0)
import time
time.sleep(1000)
"""


def test_processes_that_keep_forking_away_do_not_outlive_a_reset(host: Host) -> None:
    for _ in range(5):
        with host.launch("toolbox") as instance:
            storm = run_aside(instance, ["/usr/bin/python3", "-ISs", "-c", ROVERS, "8"])
            time.sleep(0.3)
            old = instance.incarnation
            instance.reset()
            host.reaper.drain()
            with pytest.raises(OSError, match="ENOENT"):
                old.cgroup.pids()
            storm.join(10)
            assert not storm.is_alive()


def test_memory_hog_is_killed_and_the_host_goes_on(host: Host, instance: Instance) -> None:
    with host.launch("toolbox") as other:
        limit = instance.incarnation.template.profile.limits.memory_bytes
        assert limit is not None
        hog = python(instance, f"data = b'x' * {2 * limit}")
        assert hog.status == 137
        assert python(instance, f"open('/dev/shm/x', 'wb').write(b'x' * {2 * limit})").status != 0
        is_answered_soon(other)
        instance.reset()
        is_answered_soon(instance)
        assert sh(instance, "ls /dev/shm") == ""


def test_busy_loops_leave_the_processor_to_others(host: Host, instance: Instance) -> None:
    with host.launch("toolbox") as other:
        loops = run_aside(
            instance, ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait"]
        )
        time.sleep(0.3)
        is_answered_soon(other)
        instance.reset()
        loops.join(10)
        assert not loops.is_alive()


def test_output_without_end_is_cut_off(instance: Instance) -> None:
    with pytest.raises(WebservError, match="wrote more than 256 MiB"):
        instance.exec(["/bin/dd", "if=/dev/zero", "bs=1M"], timeout_s=120)
    deadline = time.monotonic() + 5
    while "dd" in sh(instance, "ps -o comm"):  # pid 1 has it to reap yet
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("n_files", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_heaps_of_small_files_are_told_and_removed(host: Host, instance: Instance, n_files: int) -> None:
    script = """
import os, sys
for number in range(int(sys.argv[1])):
    if number % 1000 == 0:
        os.mkdir(f"/var/lib/store/d{number}")
        os.chdir(f"/var/lib/store/d{number}")
    os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY))
"""
    assert python(instance, script, str(n_files)).status == 0
    assert len(instance.changes().added) == n_files + n_files // 1000
    timing = instance.reset()
    assert timing.ready_ms < 5000
    host.reaper.drain()
    assert instance.changes().added == ()


# Answers

SERVER: Final = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 80))
while True:
    connection, _ = listener.accept()
    connection.recv(4096)
    try:
        {answer}
    except OSError:
        pass
    connection.close()
"""


ANSWERS: Final = {
    "byte by byte": ('[(connection.send(b"H"), time.sleep(0.1)) for _ in range(1000)]', "GET /: timed out"),
    "header by header": (
        'connection.send(b"HTTP/1.1 200 OK\\r\\n"); '
        '[(connection.send(b"A: b\\r\\n"), time.sleep(0.1)) for _ in range(1000)]',
        "GET /: timed out",
    ),
    "page without end": (
        'connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n"); '
        '[connection.sendall(b"x" * 99999) for _ in iter(int, 1)]',
        "the page does not contain 'wanted'",
    ),
    "cut off": (
        'connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 99999999999\\r\\n\\r\\nwanted")',
        "GET /: IncompleteRead",
    ),
    "noise": ('connection.sendall(b"\\xff\\x00nonsense\\r\\n\\r\\n")', "GET /: "),
    "many headers": ('connection.sendall(b"HTTP/1.1 200 OK\\r\\n" + b"A: b\\r\\n" * 100000)', "GET /: "),
    "long header": ('connection.sendall(b"HTTP/1.1 200 OK\\r\\n" + b"A" * 10000000)', "GET /: "),
    "nothing": ("pass", "GET /: "),
}


@pytest.mark.parametrize(("answer", "complaint"), ANSWERS.values(), ids=ANSWERS)
def test_nonsense_for_an_answer_does_not_keep_a_probe_beyond_its_time(
    host: Host, new_base: NewBase, tmp_path: Path, answer: str, complaint: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    box.make_root(root)
    (root / "opt/server.py").write_text(SERVER.format(answer=answer))
    base = new_base(
        """
        name = "nonsense"
        port = 80
        [[services]]
        name = "web"
        command = ["/usr/bin/python3", "-ISs", "/opt/server.py"]
        [ready]
        http = "/"
        contains = "wanted"
        timeout_s = 1
        [[mounts]]
        source = "/usr"
        target = "/usr"
        """,
        root,
    )
    began = time.monotonic()
    with pytest.raises(NotReady) as caught:
        host.launch(base)
    assert time.monotonic() - began < 6
    assert complaint in str(caught.value)
    assert len(str(caught.value)) < 6000


def test_frozen_or_stopped_processes_can_be_reset(instance: Instance) -> None:
    run = run_aside(instance, ["/bin/sh", "-c", "kill -STOP -1; kill -STOP $$"])
    time.sleep(0.2)
    instance.reset()
    run.join(10)
    assert not run.is_alive()
    assert get(instance) == (200, box.PAGE)


STOPPER: Final = """
import os, signal, sys
open("/tmp/up", "w").close()
known = set(os.listdir("/proc"))
while True:
    for name in os.listdir("/proc"):
        if name not in known and name.isdigit():
            try:
                os.kill(int(name), signal.SIGKILL if sys.argv[1] == "KILL" else signal.SIGSTOP)
            except OSError:
                pass
"""


@pytest.mark.parametrize("name", ["KILL", "STOP"])
def test_commands_that_are_killed_or_stopped_as_they_start_end_in_time(instance: Instance, name: str) -> None:
    stopper = run_aside(instance, ["/usr/bin/python3", "-ISs", "-c", STOPPER, name])
    while not (instance.root / "tmp/up").exists():
        time.sleep(0.01)
    is_hit = False
    for _ in range(20):
        began = time.monotonic()
        try:
            is_hit = instance.exec(["/bin/sleep", "0.05"], timeout_s=0.5).status == 137
        except WebservError:
            is_hit = True
        assert time.monotonic() - began < 15
        if is_hit:
            break
    assert is_hit
    instance.reset()
    stopper.join(10)
    assert not stopper.is_alive()
    assert get(instance) == (200, box.PAGE)


def test_pid_1_of_the_site_itself_may_be_hostile(host: Host, new_base: NewBase) -> None:
    script = "trap '' TERM INT HUP QUIT; touch /tmp/up; while :; do (sleep 0.01 &); done"
    base = new_base(
        f'name = "mean"\nport = 80\n[entrypoint]\npid1 = true\ncommand = ["/bin/sh", "-c", "{script}"]\n'
        '[ready]\ncommand = ["/bin/test", "-e", "/tmp/up"]\n[stop]\ntimeout_s = 0.2\n'
    )
    with host.launch(base) as instance:
        instance.stop()
        instance.reset()
