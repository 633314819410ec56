"""Programs that single commands need; none is needed to run instances."""

from __future__ import annotations

import shutil

from webserv_rt.doctor.check import Check

# Program, Debian package, what it is for.
_OPTIONAL = (
    ("mmdebstrap", "mmdebstrap", "root filesystems from Debian packages (the wordpress and redmine recipes)"),
    ("podman", "podman", "imports from podman's store (podman:NAME:TAG)"),
    ("qemu-system-x86_64", "qemu-system-x86", "make test-vm"),
)


def examine() -> list[Check]:
    """Return one check per program."""
    return [_program(*entry) for entry in _OPTIONAL]


def _program(name: str, package: str, purpose: str) -> Check:
    path = shutil.which(name)
    if path is not None:
        return Check(name, "ok", f"{path}, for {purpose}")
    return Check(name, "degraded", f"not installed; only for {purpose}", f"apt-get install {package}")
