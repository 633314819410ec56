"""The named profiles, and what is said about bad ones."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from webserv_rt.kernel.cgroup import Limits
from webserv_rt.profile import PROFILES, Profile, load_profile
from webserv_rt.toml_model import SpecError

NAMES = sorted(path.stem for path in PROFILES.glob("*.toml"))

GOOD = {
    "memory_max_mib": "256",
    "memory_high_mib": "200",
    "swap_max_mib": "0",
    "shm_max_mib": "16",
    "cpu_weight": "50",
    "cpus": "1.5",
    "pids_max": "64",
    "io_weight": "100",
    "storage_max_mib": "128",
    "open_files": "1024",
}


def write(directory: Path, **changes: str) -> None:
    lines = [f"{key} = {value}\n" for key, value in {**GOOD, **changes}.items() if value]
    (directory / "mine.toml").write_text("".join(lines))


def test_the_promised_profiles_are_there() -> None:
    assert {"tiny", "php", "rails", "jvm"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_loads(name: str) -> None:
    assert isinstance(load_profile(name), Profile)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_its_reason_in_a_comment_above(name: str) -> None:
    lines = (PROFILES / f"{name}.toml").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"\w+ = ", line):
            assert before.startswith("# "), f"{line!r} has no reason"


def test_profile_becomes_limits(tmp_path: Path) -> None:
    write(tmp_path)
    profile = load_profile("mine", tmp_path)
    assert profile.limits == Limits(
        memory_bytes=256 << 20,
        memory_high_bytes=200 << 20,
        swap_bytes=0,
        cpu_weight=50,
        cpu_quota_us=150_000,
        cpu_period_us=100_000,
        pids=64,
        io_weight=100,
    )
    assert (profile.shm_bytes, profile.storage_bytes, profile.open_files) == (16 << 20, 128 << 20, 1024)


def test_whole_number_of_cpus_needs_no_point(tmp_path: Path) -> None:
    write(tmp_path, cpus="2")
    assert load_profile("mine", tmp_path).limits.cpu_quota_us == 200_000


@pytest.mark.parametrize("name", ["none", "../php", "", "php.toml"])
def test_unknown_profile_is_refused_naming_those_there_are(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_profile(name)
    assert str(caught.value) == f'{PROFILES}: no profile is called "{name}"; known are {", ".join(NAMES)}'


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("memory_max_mib", "0", "must be from 1 to 16777216, got 0"),
        ("memory_max_mib", '"1 GiB"', 'must be an integer, got "1 GiB"'),
        ("memory_high_mib", "256", "must be less than memory_max_mib, 256, got 256"),
        ("swap_max_mib", "-1", "must be from 0 to 16777216, got -1"),
        ("cpu_weight", "10001", "must be from 1 to 10000, got 10001"),
        ("cpus", "0.001", "must be from 0.01 to 1024.0, got 0.001"),
        ("cpus", '"all"', 'must be a number, got "all"'),
        ("cpus", "nan", "must be from 0.01 to 1024.0, got NaN"),
        ("pids_max", "1.5", "must be an integer, got 1.5"),
        ("io_weight", "0", "must be from 1 to 10000, got 0"),
        ("open_files", "8", "must be from 16 to 1048576, got 8"),
    ],
)
def test_bad_value_is_refused_by_file_line_and_key(
    tmp_path: Path, key: str, value: str, complaint: str
) -> None:
    write(tmp_path, **{key: value})
    line = list(GOOD).index(key) + 1
    with pytest.raises(SpecError) as caught:
        load_profile("mine", tmp_path)
    assert str(caught.value) == f"{tmp_path}/mine.toml:{line}: {key}: {complaint}"


def test_missing_key_is_refused(tmp_path: Path) -> None:
    write(tmp_path, pids_max="")
    with pytest.raises(SpecError, match=r"mine\.toml:1: pids_max: is required"):
        load_profile("mine", tmp_path)


def test_unknown_key_is_refused_with_the_likely_one(tmp_path: Path) -> None:
    write(tmp_path, pids_maximum="5")
    with pytest.raises(
        SpecError, match=r'mine\.toml:11: pids_maximum: unknown key; did you mean "pids_max"\?'
    ):
        load_profile("mine", tmp_path)


def test_file_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, cpus="1.5 cpus")
    with pytest.raises(SpecError, match=r"mine\.toml:6:\d+: not valid TOML"):
        load_profile("mine", tmp_path)
