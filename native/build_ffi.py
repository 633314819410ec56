"""Describe the C core to cffi (API mode): which sources, which headers, which flags."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cffi import FFI

NATIVE = Path(__file__).resolve().parent

# The order matters: a header may use types of those before it.
HEADERS = sorted(
    (str(path.relative_to(NATIVE)) for path in [*NATIVE.glob("*.h"), *NATIVE.glob("gateway/gateway.h")]),
    key=lambda name: (name != "error.h", name),
)
PRIVATE_HEADERS = {
    "arch.h",
    "arch_x86_64.h",
    "arch_aarch64.h",
    "beneath.h",
    "cleanup.h",
    "clone_entry.h",
}
if os.environ.get("WSRT_BUILD") != "faults":
    PRIVATE_HEADERS.add("faults.h")
SOURCES = sorted(
    str(path.relative_to(NATIVE.parent)) for path in [*NATIVE.glob("*.c"), *NATIVE.glob("gateway/*.c")]
)
INIT_SOURCES = ["error.c", "faults.c", *sorted(f"init/{path.name}" for path in NATIVE.glob("init/*.c"))]

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wvla", "-Wstrict-prototypes"]


def compile_flags(*, for_init: bool = False) -> list[str]:
    """Return the compiler flags of the flavour that WSRT_BUILD names."""
    flavour = os.environ.get("WSRT_BUILD", "release")
    flags = ["-std=gnu11", "-D_GNU_SOURCE", f"-I{NATIVE}", "-fvisibility=hidden", *WARNINGS]
    if flavour == "release":
        return [*flags, "-O2", "-g"]
    if flavour == "sanitize":
        # AddressSanitizer cannot be linked statically: pid 1 gets UBSan alone, trapping (it has no runtime).
        sanitizers = (
            ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
            if for_init
            else ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
        )
        return [*flags, "-O1", "-g", "-fno-omit-frame-pointer", *sanitizers]
    if flavour == "faults":
        return [*flags, "-O1", "-g", "-DWSRT_FAULTS", "-include", str(NATIVE / "faults.h")]
    raise SystemExit(f"WSRT_BUILD={flavour}: use release, sanitize or faults")


def declarations(header: str) -> str:
    """Reduce a header to what cffi's parser reads: no preprocessor lines, attributes or inline functions."""
    text = (NATIVE / header).read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", text)


PUBLIC_HEADERS = [name for name in HEADERS if name not in PRIVATE_HEADERS]

ffi = FFI()
ffi.cdef("typedef int pid_t;")
for name in PUBLIC_HEADERS:
    ffi.cdef(declarations(name))

flags = compile_flags()
ffi.set_source(
    "webserv_rt._native",
    "".join(f'#include "{name}"\n' for name in PUBLIC_HEADERS),
    sources=SOURCES,
    # Otherwise a changed header rebuilds nothing.
    depends=[str(path.relative_to(NATIVE.parent)) for path in NATIVE.rglob("*.h")],
    # cffi's own generated code is not ours to warn about: its unused parameters stay warnings.
    extra_compile_args=[*flags, "-Wno-unused-parameter", "-pthread"],
    extra_link_args=[flag for flag in flags if flag.startswith("-fsanitize")] + ["-pthread"],
)
