"""Make a root filesystem from Debian packages with mmdebstrap, from this host's own package sources."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from webserv_rt.errors import WebservError

_LEFT_OUT: Final = (
    "/usr/share/man/*",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
    "/usr/share/lintian/*",
)
# What of apt's own configuration is about this host's package lists, not about how to reach the sources.
_NOT_TAKEN: Final = re.compile(
    r"Acquire::(IndexTargets|Languages|Changelogs|CompressionTypes|cdrom|GzipIndexes)"
)
_N_ERROR_LINES: Final = 15

# It mounts things in the target and runs for minutes: in namespaces of its own, which end with it, and it
# ends with whoever started it, however that ends.
_CONFINEMENT: Final = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


def debian_root(target: Path, packages: Sequence[str], say: Callable[[str], None]) -> None:
    """Unpack and configure `packages` without recommendations into `target`, which must not exist.

    `say` is told what is being done, line by line. Raises `WebservError` with mmdebstrap's last lines.
    """
    if shutil.which("mmdebstrap") is None:
        raise WebservError("this recipe needs mmdebstrap: apt-get install mmdebstrap")
    command = ["mmdebstrap", "--mode=root", "--variant=essential", "--format=directory"]
    command += ['--aptopt=APT::Install-Recommends "false"', '--aptopt=Acquire::Languages "none"']
    command += [f"--aptopt={option}" for option in _host_apt_options()]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    command += ["--dpkgopt=path-include=/usr/share/doc/*/copyright", f"--include={','.join(packages)}"]
    command += [release()[1], str(target), *map(str, _sources())]
    run_confined(command, say)


def release() -> tuple[str, str]:
    """Return this host's distribution and the code name of its release ("debian", "bookworm")."""
    fields = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    return fields["ID"].strip('"'), fields.get("VERSION_CODENAME", "").strip('"')


def _sources() -> list[Path]:
    candidates = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    found = [path for path in candidates if path.suffix in (".list", ".sources") and path.is_file()]
    if not found:
        raise WebservError("this host has no apt sources: recipes with packages need Debian's, in /etc/apt")
    return found


def _host_apt_options() -> list[str]:
    """Return how this host reaches its sources (proxy, certificates, retries)."""
    command = ["apt-config", "dump", "--no-empty", "--format", '%f "%v";%n', "Acquire"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if not _NOT_TAKEN.match(line)]


def run_confined(command: Sequence[str], say: Callable[[str], None]) -> None:
    """Run a builder of root filesystems, which ends with this thread at the latest.

    `say` is told each line that it writes. Raises `WebservError` with the last of them.
    """
    lines: list[str] = []
    with subprocess.Popen(
        [*_CONFINEMENT, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            say(lines[-1])
    if process.returncode != 0:
        raise WebservError(f"{command[0]} failed:\n  " + "\n  ".join(lines[-_N_ERROR_LINES:]))
