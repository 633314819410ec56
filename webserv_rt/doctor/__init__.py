"""What this kernel, this user and this filesystem can do, and what to do about what is missing."""

from __future__ import annotations

from pathlib import Path

from webserv_rt.doctor import cgroups, isolation, limits, privileges, programs, storage
from webserv_rt.doctor.check import Check, Status
from webserv_rt.doctor.trial import TrialsImpossible, run_trials, scratch_directory

__all__ = ["Check", "Status", "examine"]


def examine(pool: Path) -> list[Check]:
    """Try what instances in POOL (which need not exist yet) will need; takes less than a second.

    Everything is tried on real objects, in a child process with its own mount namespace, and is gone
    afterwards.
    """
    return [*privileges.examine(), *_tried(pool), *limits.examine(), *programs.examine()]


def _tried(pool: Path) -> list[Check]:
    try:
        with scratch_directory(pool) as scratch:
            trials = run_trials(scratch)
            return [
                *isolation.examine(trials),
                *cgroups.examine(trials["control group"]),
                *storage.examine(pool, scratch, trials),
            ]
    except TrialsImpossible as error:
        return [
            Check("trials", "missing", f"nothing else could be tried: {error}", "run as root of the host")
        ]
