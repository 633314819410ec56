"""Run tests on a stock Debian kernel in qemu, with the cgroup layout that you choose.

    python tests/vm/run.py [--cgroup v2|hybrid|v1] [--timeout SECONDS] PYTEST_ARGUMENT...

The guest sees this machine's root filesystem under a writable layer of its own, so the tests find the same
Python, the same virtual environment and the same checkout. Prints what pytest prints and exits with its code.
The guest's kernel messages go to a log whose last lines are shown when the guest dies.
Needs qemu-system-x86, busybox-static, e2fsprogs, and apt to download the kernel's package once. No KVM.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from initramfs import Initramfs
from kernel import MODULES, image, modules, unpacked_kernel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MARK = "guest ends with pytest's exit code "
MEMORY_MIB = 2048
DISK_BYTES = 16 << 30  # sparse; the tests make a pool of 8 GiB on it


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cgroup", choices=["v2", "hybrid", "v1"], default="v2")
    parser.add_argument("--timeout", type=float, default=280, help="seconds until the guest is given up")
    options, pytest_arguments = parser.parse_known_args()
    require("qemu-system-x86_64", "qemu-system-x86")
    require("busybox", "busybox-static")
    kernel = unpacked_kernel()
    with tempfile.TemporaryDirectory(prefix="webserv-rt-vm-") as directory:
        work = Path(directory)
        write_initramfs(work / "initramfs", kernel, job(options.cgroup, pytest_arguments))
        with (work / "disk").open("wb") as disk:
            disk.truncate(DISK_BYTES)
        code = boot(work, image(kernel), options.timeout)
        if code is None:
            sys.stderr.write(f"the guest ended without a result; its console:\n{console_tail(work)}\n")
    return 1 if code is None else code


def require(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise SystemExit(f"{program} is missing: apt-get install {package}")


def job(layout: str, pytest_arguments: list[str]) -> str:
    """Return the script that mounts the hierarchies and runs the tests."""
    passed_on = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(("WSRT_", "CI"))]
    environment = [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LANG=C.UTF-8",
        "TMPDIR=/scratch",
    ]
    color = "yes" if sys.stdout.isatty() else "no"
    tests = [sys.executable, "-m", "pytest", "-rs", f"--color={color}", *pytest_arguments]
    command = ["env", "-i", "-C", str(ROOT), *environment, *passed_on, *tests]
    script = (HERE / "job.sh").read_text()
    for name, value in {"@LAYOUT@": layout, "@COMMAND@": shlex.join(command), "@MARK@": MARK}.items():
        script = script.replace(name, value)
    return script


def write_initramfs(path: Path, kernel: Path, job_script: str) -> None:
    archive = Initramfs(path)
    for name in ("bin", "dev", "host", "modules", "proc", "root", "sys", "writable"):
        archive.directory(name)
    archive.character_device("dev/console", 5, 1)
    busybox = shutil.which("busybox")
    assert busybox
    archive.file("bin/busybox", Path(busybox).read_bytes(), executable=True)
    archive.file("init", (HERE / "init.sh").read_bytes(), executable=True)
    archive.file("job", job_script.encode())
    loaded = modules(kernel, MODULES)
    archive.file("modules/order", "".join(f"{name}\n" for name, _ in loaded).encode())
    for name, content in loaded:
        archive.file(f"modules/{name}", content)
    archive.close()


def boot(work: Path, kernel_image: Path, timeout_s: float) -> int | None:
    """Run the guest, passing on what it prints; return pytest's exit code, None when it told none."""
    guest = subprocess.Popen(
        [
            *(
                "qemu-system-x86_64",
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "max",
                "-smp",
                "2",
                "-m",
                str(MEMORY_MIB),
            ),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-kernel", str(kernel_image), "-initrd", str(work / "initramfs")),
            *("-append", "console=ttyS0 panic=-1 quiet loglevel=4"),
            *("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"),
            *("-drive", f"file={work / 'disk'},format=raw,if=virtio,cache=unsafe"),
            *("-serial", f"file:{work / 'console'}", "-serial", "stdio"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    timer = threading.Timer(timeout_s, give_up, [guest, timeout_s])
    timer.start()
    try:
        return pass_on(guest)
    finally:
        timer.cancel()
        guest.kill()
        guest.wait()


def give_up(guest: subprocess.Popen[str], timeout_s: float) -> None:
    sys.stderr.write(f"the guest did not end within {timeout_s:g} s\n")
    guest.kill()


def pass_on(guest: subprocess.Popen[str]) -> int | None:
    assert guest.stdout is not None
    code = None
    for line in guest.stdout:
        if line.startswith(MARK):
            code = int(line.removeprefix(MARK))
        else:
            sys.stdout.write(line.rstrip("\r\n") + "\n")
            sys.stdout.flush()
    return code


def console_tail(work: Path, n_lines: int = 40) -> str:
    try:
        return "\n".join((work / "console").read_text(errors="replace").splitlines()[-n_lines:])
    except FileNotFoundError:
        return "(it never started)"


if __name__ == "__main__":
    sys.exit(main())
