"""What is installed from a checkout, not from an editable tree: complete, without warnings, and it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
DATA = ("recipes", "cgroup_profiles")
BUILD = "from setuptools import build_meta; print(build_meta.build_{kind}({directory!r}))"


def tracked(*directories: str) -> set[str]:
    """Return the files of the checkout, new ones included, what git ignores left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *directories]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (CHECKOUT / name).exists()}


def build(kind: str, source: Path, into: Path) -> tuple[Path, str]:
    """Build a "wheel" or an "sdist"; return it and all that the build printed."""
    into.mkdir(exist_ok=True)
    code = BUILD.format(kind=kind, directory=str(into))
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return into / result.stdout.splitlines()[-1], result.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files alone, as a clone would have them."""
    directory = tmp_path_factory.mktemp("source")
    for name in tracked():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, target)
    return directory


@pytest.fixture(scope="module")
def archive(source: Path) -> Path:
    path, _ = build("sdist", source, source.parent / "sdist")
    return path


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    path, printed = build("wheel", source, source.parent / "wheel")
    # MANIFEST.in excludes what only a used tree holds; setuptools remarks on finding none.
    expected = "warning: no previously-included files matching '*.py[cod]' found anywhere in distribution"
    assert [line for line in printed.splitlines() if "warning" in line.lower() and line != expected] == []
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The package directory of the wheel, installed where no checkout is near."""
    target = wheel.parent / "installed"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True)
    return target


def test_wheel_serves_every_python_from_3_10_on(wheel: Path) -> None:
    assert wheel.name.split("-")[2:4] == ["cp310", "abi3"]


def test_wheel_holds_recipes_and_profiles_as_they_are(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        prefix = "webserv_rt/_data/"
        shipped = {name.removeprefix(prefix): name for name in file.namelist() if name.startswith(prefix)}
        assert set(shipped) == tracked(*DATA)
        for name, inside in shipped.items():
            assert file.read(inside) == (CHECKOUT / name).read_bytes(), name
            is_executable = bool(file.getinfo(inside).external_attr >> 16 & 0o100)
            assert is_executable == os.access(CHECKOUT / name, os.X_OK), name


def test_wheel_holds_all_modules_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if not name.startswith("webserv_rt/_data/")}
    extra = {name for name in names - tracked("webserv_rt") if ".dist-info/" not in name}
    assert tracked("webserv_rt") - names == set()
    assert extra == {"webserv_rt/_native.abi3.so", "webserv_rt/_init/wsrt-init"}


def test_wheel_drops_what_was_deleted_since_the_last_build(source: Path, wheel: Path) -> None:
    stale = source / "build" / "lib.marker"
    for library in (source / "build").glob("lib*"):
        stale = library / "webserv_rt" / "deleted_since.py"
        stale.write_text("")
    assert stale.exists()
    again, _ = build("wheel", source, source.parent / "again")
    with zipfile.ZipFile(again) as file:
        assert "webserv_rt/deleted_since.py" not in file.namelist()


def test_source_archive_holds_what_the_build_needs(archive: Path) -> None:
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    needed = tracked("webserv_rt", "native", "tests", "docs", *DATA) | {
        "setup.py",
        "pyproject.toml",
        "Makefile",
    }
    assert needed - names == set()


def test_source_archive_builds_the_same_wheel(archive: Path, wheel: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-C", tmp_path, "-xf", archive], check=True)
    [unpacked] = tmp_path.iterdir()
    theirs, _ = build("wheel", unpacked, tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(theirs) as other:
        assert sorted(ours.namelist()) == sorted(other.namelist())


def test_pid_1_needs_no_library(installed: Path) -> None:
    program = installed / "webserv_rt" / "_init" / "wsrt-init"
    assert os.access(program, os.X_OK)
    headers = subprocess.run(["readelf", "-l", program], capture_output=True, text=True, check=True).stdout
    assert "INTERP" not in headers and "DYNAMIC" not in headers


def test_installed_command_runs_and_finds_its_data(installed: Path, tmp_path: Path) -> None:
    code = """
import webserv_rt._native
from webserv_rt.cli import main
from webserv_rt.profile import load_profile
from webserv_rt.recipe import find_recipe, load_recipe
print(webserv_rt._native.__file__)
print(load_recipe(find_recipe("shop")).setup, load_profile("tiny").pids_max)
"""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    path, found = result.stdout.splitlines()
    assert path == str(installed / "webserv_rt" / "_native.abi3.so")
    assert found.startswith("setup.sh ")
