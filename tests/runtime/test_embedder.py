"""Programs that embed the runtime are what they are: nothing of theirs gets inside, nothing of it fails for that.

Each test runs one of its own, as a process that opens a second Host on the pool.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from typing import Final

import pytest
import toolbox as box
from conftest import NewBase

from webserv_rt.host import Host
from webserv_rt.storage.pool import Pool

# Comes before each program; BASE is the site's name, `say` prints whatever became of the standard streams.
PRELUDE: Final = """
import fcntl, os, signal, sys, threading, time
from webserv_rt.host import Host
POOL, CGROUP, BASE = sys.argv[1:]
_output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 100)
def say(text):
    os.write(_output, f"{text}\\n".encode())
def open_host():
    return Host(POOL, n_networks=1, cgroup_parent=CGROUP)
"""


def embed(
    pool: Pool, cgroup_parent: str, base: str, program: str, *, stdin: int = subprocess.DEVNULL
) -> list[str]:
    """Run an embedding program to its end; `stdin` is a terminal, to be that of its session."""
    # Unbuffered: at its end Python would complain of standard streams that the program has closed.
    command = [sys.executable, "-u", "-c", PRELUDE + program, str(pool.path), cgroup_parent, base]
    if stdin != subprocess.DEVNULL:
        command = ["setsid", "--ctty", "--wait", *command]
    ended = subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_closed_standard_streams_do_not_mix_up_the_logs(pool: Pool, cgroup_parent: str, toolbox: str) -> None:
    program = """
with open_host() as host:
    for fd in range(3):
        os.close(fd)
    with host.launch(BASE) as instance:
        show = "readlink /proc/1/fd/0; readlink /proc/1/fd/2"
        say(instance.exec(["/bin/sh", "-c", show]).stdout.decode().split())
        instance.exec(["/bin/sh", "-c", "exec >/dev/null 2>&1; (sleep 0.1; kill -9 $(pidof httpd)) &"])
        instance.incarnation.process.wait()
        say(instance.logs("init"))
"""
    streams, log, _ = embed(pool, cgroup_parent, toolbox, program)
    assert streams.startswith("['/dev/null', ")
    assert streams.endswith("/logs/init.log']")
    assert log == "web was killed by signal 9 (Killed)"


@pytest.mark.parametrize("kind", ["ignores", "reaps in a handler", "reaps in a thread"])
def test_embedder_that_takes_every_childs_end_leaves_statuses_right(
    pool: Pool, cgroup_parent: str, new_base: NewBase, kind: str
) -> None:
    setup = '[[services]]\nname = "setup"\nrun = "once"\ncommand = ["/bin/true"]\n'
    base = new_base(box.SITE.replace("[[services]]", f"{setup}\n[[services]]", 1))
    greed = {
        "ignores": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "reaps in a handler": "signal.signal(signal.SIGCHLD, lambda *_: reap(os.WNOHANG))",
        "reaps in a thread": "threading.Thread(target=lambda: [reap(0) for _ in iter(int, 1)], daemon=True).start()",
    }[kind]
    program = f"""
def reap(flags):
    try:
        while os.waitpid(-1, flags)[0]:
            pass
    except ChildProcessError:
        time.sleep(0.001)
{greed}
with open_host() as host, host.launch(BASE) as instance:
    for status in range(8):
        say(instance.exec(["/bin/sh", "-c", f"exit {{status}}"]).status)
    say(instance.exec(["/bin/sh", "-c", "kill -9 $$"]).status)
    instance.reset()
    host.reaper.drain()
    say(instance.exec(["/bin/false"], timeout_s=10).status)
os._exit(0)
"""
    assert embed(pool, cgroup_parent, base, program) == [*map(str, range(8)), "137", "1"]


TERMINAL: Final = """
name = "terminal"
port = 80
[entrypoint]
pid1 = true
command = ["/bin/sh", "-c", "echo seen > /dev/tty; exec /bin/httpd -f -p 80 -h /srv/www"]
[ready]
http = "/"
"""


@pytest.mark.parametrize("is_pid1", [False, True])
def test_terminal_of_the_embedder_is_not_that_of_the_instance(
    pool: Pool, cgroup_parent: str, toolbox: str, new_base: NewBase, is_pid1: bool
) -> None:
    base = new_base(TERMINAL) if is_pid1 else toolbox
    program = """
os.close(os.open("/dev/tty", os.O_RDWR))  # it has one
with open_host() as host, host.launch(BASE) as instance:
    pid = instance.incarnation.process.pid
    say(os.getsid(pid) == pid and os.getpgid(pid) == pid)
    say(instance.logs())
"""
    main, terminal = pty.openpty()
    try:
        own_session, *log = embed(pool, cgroup_parent, base, program, stdin=terminal)
        os.set_blocking(main, False)
        with pytest.raises(BlockingIOError):
            os.read(main, 1)
    finally:
        os.close(main)
        os.close(terminal)
    assert own_session == "True"
    assert any("can't create /dev/tty" in line for line in log) == is_pid1


def test_umask_of_the_embedder_closes_no_directory_inside(
    pool: Pool, cgroup_parent: str, new_base: NewBase
) -> None:
    base = new_base(box.SITE + '\n[[mounts]]\nsource = "/usr/share"\ntarget = "/new/deeper/share"\n')
    program = """
os.umask(0o777)
with open_host() as host, host.launch(BASE) as instance:
    say(instance.exec(["/bin/ls", "/new/deeper"], user="visitor").stdout.decode().strip())
    say(instance.exec(["/bin/head", "-n", "1", "/etc/hosts"], user="visitor").stdout.decode().strip())
    say(instance.exec(["/bin/sh", "-c", "umask; echo > /tmp/x; stat -c %a /tmp/x /dev /dev/shm"]).stdout.decode().split())
"""
    assert embed(pool, cgroup_parent, base, program) == [
        "share",
        "127.0.0.1 localhost",
        "['0022', '644', '755', '1777']",
    ]


def test_child_that_the_embedder_forks_takes_nothing_away(
    pool: Pool, cgroup_parent: str, toolbox: str
) -> None:
    """Its copy of the Host ends as its own `with` blocks do, and when it is collected; no call hangs."""
    program = """
import gc
with open_host() as host, host.launch(BASE) as instance, host.world([BASE], name="w") as world:
    for way in ("exit", "collect", "reset"):
        pid = os.fork()
        if pid == 0:
            if way == "reset":
                try:
                    instance.reset()
                except OSError as error:
                    say(error)
            if way == "collect":
                del host, instance, world
                gc.collect()
                os._exit(0)
            sys.exit()
        deadline = time.monotonic() + 10
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            assert time.monotonic() < deadline, f"{way}: the child hangs"
            time.sleep(0.01)
    say(instance.exec(["/bin/echo", "lives"]).stdout.decode().strip())
    say(world[BASE].reset().ready_ms > 0)
"""
    assert embed(pool, cgroup_parent, toolbox, program) == [
        "call on gateway of the process that this one was forked from: ECHILD (No child processes)",
        "lives",
        "True",
    ]


def test_child_that_the_embedder_forked_keeps_nothing_of_a_killed_one_alive(
    pool: Pool, cgroup_parent: str, toolbox: str
) -> None:
    program = """
import multiprocessing
host = open_host()
host.launch(BASE)
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
worker.start()
say(worker.pid)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", PRELUDE + program, str(pool.path), cgroup_parent, toolbox]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            assert process.wait(10) == -signal.SIGKILL
            os.kill(worker, 0)
            with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
                assert len(host.collected.owners) == 1
                assert host.collected.n_processes > 0
        finally:
            os.kill(worker, signal.SIGKILL)
