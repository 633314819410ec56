"""Cgroup profiles: what an instance of one kind of site may use (cgroup_profiles/NAME.toml)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, model_validator

from webserv_rt.data import data_directory
from webserv_rt.kernel.cgroup import Limits
from webserv_rt.toml_model import Problem, SpecError, Table, load_toml, quote, refuse

PROFILES = data_directory("cgroup_profiles")

# The kernel's default. A shorter one lets a throttled request go on sooner but costs a timer more often.
CPU_PERIOD_US = 100_000

_MIB = 1 << 20

Number = TypeVar("Number", int, float)


def _between(least: Number, most: Number) -> Callable[[Number], Number]:
    def check(value: Number) -> Number:
        if not least <= value <= most:
            raise ValueError(f"must be from {least} to {most}, got {quote(value)}")
        return value

    return check


Mebibytes = Annotated[int, AfterValidator(_between(1, 1 << 24))]
SwapMebibytes = Annotated[int, AfterValidator(_between(0, 1 << 24))]
Weight = Annotated[int, AfterValidator(_between(1, 10_000))]
# The kernel refuses a quota under a millisecond in its period of a hundred.
Cpus = Annotated[float, AfterValidator(_between(0.01, 1024.0))]
Tasks = Annotated[int, AfterValidator(_between(1, 1 << 22))]
OpenFiles = Annotated[int, AfterValidator(_between(16, 1 << 20))]


class Profile(Table):
    """What one instance may use, as written in a profile; every number has to be there.

    `open_files` is a wish: pid 1 asks for no more than the hard limit that it runs under.
    """

    memory_max_mib: Mebibytes
    memory_high_mib: Mebibytes
    swap_max_mib: SwapMebibytes
    shm_max_mib: Mebibytes
    cpu_weight: Weight
    cpus: Cpus
    pids_max: Tasks
    io_weight: Weight
    storage_max_mib: Mebibytes
    open_files: OpenFiles

    @model_validator(mode="after")
    def _high_comes_before_max(self) -> Profile:
        if self.memory_high_mib >= self.memory_max_mib:
            complaint = f"must be less than memory_max_mib, {self.memory_max_mib}, got {self.memory_high_mib}"
            refuse({("memory_high_mib",): complaint})
        return self

    @property
    def limits(self) -> Limits:
        """What the cgroup of an instance is limited to."""
        return Limits(
            memory_bytes=self.memory_max_mib * _MIB,
            memory_high_bytes=self.memory_high_mib * _MIB,
            swap_bytes=self.swap_max_mib * _MIB,
            cpu_weight=self.cpu_weight,
            cpu_quota_us=round(self.cpus * CPU_PERIOD_US),
            cpu_period_us=CPU_PERIOD_US,
            pids=self.pids_max,
            io_weight=self.io_weight,
        )

    @property
    def shm_bytes(self) -> int:
        """How large /dev/shm may grow; its pages count as memory of the instance too."""
        return self.shm_max_mib * _MIB

    @property
    def storage_bytes(self) -> int:
        """How much an instance may write to the pool."""
        return self.storage_max_mib * _MIB


def load_profile(name: str, directory: Path = PROFILES) -> Profile:
    """Read the profile called NAME.

    Raises `SpecError`: which profiles there are, or file, line and key of everything wrong in this one.
    """
    names = sorted(path.stem for path in directory.glob("*.toml"))
    if name not in names:
        message = f"no profile is called {quote(name)}; known are {', '.join(names) or 'none'}"
        raise SpecError([Problem(str(directory), "", message)])
    return load_toml(directory / f"{name}.toml", Profile)
