"""No function of the C library that can fail is forgotten by native/faults.h."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

NATIVE: Final = Path(__file__).resolve().parents[2] / "native"

# What cannot fail, or not in a way that code could answer (faults.h says so), or computes only.
LEFT_ALONE: Final = {
    *["_exit", "abort", "close", "closedir", "exit", "fclose", "free", "kill", "waitid", "waitpid"],
    *["pthread_attr_destroy", "pthread_attr_setstacksize", "pthread_join", "pthread_sigmask"],
    *[f"pthread_cond_{name}" for name in ("broadcast", "destroy", "init", "signal", "wait")],
    *[f"pthread_mutex_{name}" for name in ("destroy", "init", "lock", "unlock")],
    *["sigaddset", "sigemptyset", "sigfillset", "signal", "sigprocmask", "tdestroy", "tfind"],
    *["clock_gettime", "dirfd", "dprintf", "eventfd_read", "eventfd_write", "feof", "ferror", "fscanf"],
    *["getegid", "geteuid", "getpid", "environ", "sysconf", "umask"],
    *["htonl", "htons", "ntohs", "inet_ntop", "inet_pton", "__cmsg_nxthdr", "gnu_dev_makedev"],
    *["bsearch", "snprintf", "sscanf", "strerror", "strsignal", "strtok_r", "strtoll", "vsnprintf"],
    *["memchr", "memcmp", "memcpy", "memmove", "memset", "strchr", "strcmp", "strcpy", "strcspn", "strlen"],
    *["strncmp", "strnlen", "strrchr", "strspn", "strstr"],
}

# The same by the names that headers give them.
ALIASES: Final = {"__isoc99_fscanf": "fscanf", "__isoc99_sscanf": "sscanf", "__getdelim": "getline"}
FROM_COMPILER: Final = re.compile(
    r"_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__errno_location|_?__.*_chk|__isoc23_.*"
)


def test_every_function_called_by_the_core_can_be_made_to_fail_or_is_left_alone_for_a_reason(
    tmp_path: Path,
) -> None:
    sources = [path for path in NATIVE.rglob("*.c") if path.name != "faults.c"]
    objects = [compiled(source, tmp_path / f"{number}.o") for number, source in enumerate(sources)]
    called = symbols(objects, "--undefined-only") - symbols(objects, "--defined-only")
    called = {ALIASES.get(name, name) for name in called if not FROM_COMPILER.fullmatch(name)}
    can_fail = set(re.findall(r"^#define (\w+)\(", (NATIVE / "faults.h").read_text(), re.MULTILINE))
    assert sorted(called - can_fail - LEFT_ALONE) == []


def compiled(source: Path, output: Path) -> Path:
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", f"-I{NATIVE}", "-c", "-o", str(output), str(source)]
    subprocess.run(command, check=True)
    return output


def symbols(objects: list[Path], kind: str) -> set[str]:
    listed = subprocess.run(
        ["nm", "--format=posix", kind, *map(str, objects)], check=True, capture_output=True, text=True
    )
    return {line.split()[0] for line in listed.stdout.splitlines() if len(line.split()) > 1}
