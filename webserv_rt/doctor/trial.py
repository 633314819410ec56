"""Try kernel features for real, in a child process with a mount namespace of its own.

Run as a program (`python -m webserv_rt.doctor.trial DIRECTORY`) it prints a JSON object: trial to outcome.
Descriptors, detached mounts, loop devices and namespaces all end with the child; what lies in DIRECTORY is
its creator's to remove.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from webserv_rt.errors import WebservError
from webserv_rt.kernel.cgroup import CgroupHost, Limits
from webserv_rt.kernel.clone import clone_file
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.kernel.error import KernelError
from webserv_rt.kernel.mount import clone_mount, mount_overlay
from webserv_rt.kernel.namespace import new_network_namespace, new_user_namespace
from webserv_rt.kernel.plan import Plan, Program
from webserv_rt.kernel.process import Process, open_init_program, spawn

_STEP_TIMEOUT_S = 5
_FIRST_ID = 1 << 20  # of the trial user namespaces: any range does, nothing is left on disk
_N_IDS = 1 << 16
_XFS_IMAGE_BYTES = 320 << 20  # mkfs.xfs makes none below 300 MiB; sparse
_ALL_LIMITS = Limits(
    memory_bytes=1 << 30,
    memory_high_bytes=1 << 30,
    swap_bytes=0,
    cpu_weight=100,
    cpu_quota_us=100_000,
    cpu_period_us=100_000,
    pids=100,
    io_weight=100,
)
# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT, as instances keep
_CAPABILITIES = sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18))


@dataclass(frozen=True)
class Outcome:
    """Whether a trial worked; `text` is what it found, or what went wrong."""

    works: bool
    text: str


class TrialsImpossible(WebservError):
    """Nothing can be tried here; the text says why."""


@contextmanager
def scratch_directory(pool: Path) -> Iterator[Path]:
    """Make a directory on the filesystem that POOL is or would be on, and remove it at the end."""
    parent = pool.absolute()
    while not parent.exists():
        parent = parent.parent
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".webserv-rt-doctor-", dir=parent))
    except OSError as error:
        raise TrialsImpossible(f"cannot make a directory in {parent}: {error.strerror}") from None
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


def run_trials(scratch: Path, timeout_s: float = 60) -> Mapping[str, Outcome]:
    """Run all trials in a child process, in the empty directory SCRATCH; return their outcomes by name."""
    program = [sys.executable, "-m", __name__, str(scratch)]
    command = ["unshare", "--mount", "--propagation", "private", "--", *program]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "LC_ALL": "C.UTF-8"}
    try:
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _remove_group(scratch)
        raise TrialsImpossible(f"the trials took more than {timeout_s} s") from None
    except OSError as error:
        raise TrialsImpossible(f"cannot start unshare: {error.strerror}") from None
    if child.returncode != 0:
        raise TrialsImpossible(child.stderr.strip().rpartition("\n")[2] or f"exit status {child.returncode}")
    return {name: Outcome(**outcome) for name, outcome in json.loads(child.stdout).items()}


def _try_overlay(scratch: Path, *, by_path: bool) -> str:
    with _layers(scratch) as (lower, upper, work), clone_mount(lower, read_only=True) as detached:
        mount_overlay([detached], upper, work, by_path=by_path, volatile=True).close()
    return ""


@contextmanager
def _layers(scratch: Path) -> Iterator[tuple[Descriptor, Descriptor, Descriptor]]:
    # A directory of their own: an overlay leaves things behind in its work directory.
    directory = Path(tempfile.mkdtemp(dir=scratch))
    paths = [directory / name for name in ("lower", "upper", "work")]
    for path in paths:
        path.mkdir()
    with (
        open_directory(paths[0]) as lower,
        open_directory(paths[1]) as upper,
        open_directory(paths[2]) as work,
    ):
        yield lower, upper, work


def _try_filesystem(name: str, _: Path) -> str:
    Descriptor(_fsopen(name)).close()  # loads the module where there is one
    return ""


def _fsopen(name: str) -> int:
    fsopen_syscall, close_on_exec = 430, 1
    return _call(fsopen_syscall, name.encode(), close_on_exec)


def _call(number: int, *arguments: int | bytes) -> int:
    """Make a system call that no wrapper has; numbers from 424 on are the same on every architecture."""
    result = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def _try_idmapped_mount(scratch: Path) -> str:
    with (
        open_directory(scratch) as directory,
        _user_namespace() as userns,
        clone_mount(directory, userns=userns, read_only=True) as mount,
    ):
        uid = os.stat(".", dir_fd=mount.fileno()).st_uid
    if uid != _FIRST_ID + os.geteuid():
        raise OSError(f"uid 0 appears as {uid}")
    return ""


def _try_user_namespace(_: Path) -> str:
    _user_namespace().close()
    return ""


def _user_namespace() -> Descriptor:
    with open_init_program() as program:
        return new_user_namespace(program, _FIRST_ID, _N_IDS)


def _try_network_namespace(_: Path) -> str:
    new_network_namespace().close()
    return ""


def _try_spawn(_: Path) -> str:
    plan = Plan()
    with Descriptor(os.memfd_create("log")) as log:
        plan.become(Program("true", ["/bin/true"]), [None, log, log])
        _end(_start(plan, new_instance=True), log)
    return ""


def _try_confinement(_: Path) -> str:
    plan = Plan()
    with _user_namespace() as userns, Descriptor(os.memfd_create("log")) as log:
        plan.confine(userns, _CAPABILITIES)
        plan.become(Program("cat", ["/bin/cat", "/proc/self/status", "/proc/self/uid_map"]), [None, log, log])
        shown = _end(_start(plan), log).split()
    facts = [
        ("Seccomp:", "2"),
        ("NoNewPrivs:", "1"),
        ("CapBnd:", f"{_CAPABILITIES:016x}"),
        ("0", str(_FIRST_ID)),
    ]
    for fact in facts:
        if fact not in pairwise(shown):
            raise OSError(f"a confined process does not show {' '.join(fact)}")
    return ""


def _try_cgroup(scratch: Path) -> str:
    """Let a process be born in a group, freeze and kill it there; return the limits that are not offered."""
    with CgroupHost() as host, Descriptor(os.memfd_create("log")) as log:
        group = host.create(scratch.name)
        try:
            unapplied = group.limit(_ALL_LIMITS)
            plan = Plan()
            with group.open_entry() as entry:
                for tasks in entry.tasks:
                    plan.join_cgroup(tasks)
                plan.become(Program("sleep", ["/bin/sleep", "60"]), [None, log, log])
                process = _start(plan, cgroup=entry.born_in)
            group.freeze()
            group.kill()
            process.wait(_STEP_TIMEOUT_S)
            process.close()
            group.wait_empty()
        finally:
            group.destroy()
    return ", ".join(unapplied)


def _remove_group(scratch: Path) -> None:
    with CgroupHost() as host:
        group = host.group(scratch.name)
        try:
            group.kill()
        except KernelError as error:
            if error.errno != errno.ENOENT:  # the child did not come as far as making it
                raise
        group.destroy()


def _start(plan: Plan, *, new_instance: bool = False, cgroup: Descriptor | None = None) -> Process:
    with open_init_program() as program:
        return spawn(program, plan, new_instance=new_instance, cgroup=cgroup)


def _end(process: Process, log: Descriptor) -> str:
    """Wait for the end of a process and return what it wrote."""
    status = process.wait(_STEP_TIMEOUT_S)
    process.kill()
    process.wait()
    process.close()
    output = os.pread(log.fileno(), 1 << 16, 0).decode(errors="replace")
    if status != 0:
        raise OSError(f"the process ended with status {status}: {output.strip()}")
    return output


def _try_reflink(scratch: Path) -> str:
    (scratch / "source").write_bytes(b"webserv" * 10_000)
    with open_directory(scratch) as directory:
        clone_file(directory.fileno(), "source", directory.fileno(), "clone")
    return ""


def _try_xfs_image(scratch: Path) -> str:
    """Do what `pool create` does; the loop device goes with the mount, which goes with this process."""
    image, mount_point = scratch / "image", scratch / "mounted"
    mount_point.mkdir()
    with image.open("wb") as file:
        file.truncate(_XFS_IMAGE_BYTES)
    _run("mkfs.xfs", "-q", "-m", "reflink=1", str(image))
    _run("mount", "-t", "xfs", "-o", "loop", str(image), str(mount_point))
    try:
        return _try_reflink(mount_point)
    finally:
        _run("umount", str(mount_point))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_STEP_TIMEOUT_S)
    except FileNotFoundError:
        raise OSError(f"{command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise OSError(f"{command[0]}: {error.stderr.strip().partition(chr(10))[0]}") from None


def _try_namespace(kind: str, _: Path) -> str:
    _run("unshare", f"--{kind}", "true")
    return ""


TRIALS: Mapping[str, Callable[[Path], str]] = {
    "overlay by descriptor": partial(_try_overlay, by_path=False),
    "overlay by path": partial(_try_overlay, by_path=True),
    "idmapped mount": _try_idmapped_mount,
    "user": _try_user_namespace,
    "net": _try_network_namespace,
    **{kind: partial(_try_namespace, kind) for kind in ("mount", "pid", "ipc", "uts", "cgroup", "time")},
    "spawn": _try_spawn,
    "confinement": _try_confinement,
    "control group": _try_cgroup,
    "reflink": _try_reflink,
    "xfs": partial(_try_filesystem, "xfs"),
    "btrfs": partial(_try_filesystem, "btrfs"),
    "xfs image": _try_xfs_image,
}


def main(scratch: Path) -> None:
    """Run every trial and print the outcomes."""
    outcomes = {}
    for name, trial in TRIALS.items():
        try:
            outcomes[name] = asdict(Outcome(works=True, text=trial(scratch)))
        except (OSError, subprocess.SubprocessError) as error:
            outcomes[name] = asdict(Outcome(works=False, text=str(error)))
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
