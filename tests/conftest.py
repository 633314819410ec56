"""Real filesystems to test on: images in temporary directories, loop-mounted, gone afterwards."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from webserv_rt.storage.pool import Pool

POOL_BYTES = 8 << 30
FIGURES = pytest.StashKey[list[tuple[str, dict[str, Any]]]]()
# Reasons that are right wherever `make test` decides; anything else skipped there hides a missing package.
EXPECTED_SKIPS = re.compile(
    "this host has no \\w+ controller"  # hybrid and v1 hosts lack some, v2 hosts others
    "|delegation is of v2 hierarchies"
    "|is on no block device"  # overlay, tmpfs
    "|this machine has no block device"
    "|what may not be opened is not usable"
    "|a death has no errno"
)


def pytest_configure() -> None:
    """Hear Ctrl-C, and let all that is started hear it: what a shell runs in the background ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-unexpected-skips",
        action="store_true",
        help="fail when a test skips for a reason that tests/conftest.py does not list",
    )


def unexpected_skips(config: pytest.Config) -> list[str]:
    """Return the tests that skipped for no listed reason, with the reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    if not config.getoption("no_unexpected_skips"):
        return []
    reasons = [(report.nodeid, report.longrepr[2]) for report in reporter.stats.get("skipped", [])]
    return [f"{test}: {reason}" for test, reason in reasons if not EXPECTED_SKIPS.search(reason)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and unexpected_skips(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure() -> None:
    """Let a preloaded AddressSanitizer write down what is leaked by now (see `make sanitize`)."""
    check_leaks = getattr(ctypes.CDLL(None), "__lsan_do_recoverable_leak_check", None)
    if check_leaks is not None:
        gc.collect()
        check_leaks()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a benchmark measured: put into this, it is printed at the end of the run."""
    measured: dict[str, Any] = {}
    request.config.stash.setdefault(FIGURES, []).append((request.node.name, measured))
    return measured


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the benchmarks' figures, and the skips that should not be."""
    for skip in unexpected_skips(config):
        terminalreporter.write_line(f"UNEXPECTED SKIP {skip}", red=True)
    for name, measured in config.stash.get(FIGURES, []):
        terminalreporter.section(name)
        for key, value in measured.items():
            terminalreporter.line(f"{key}: {json.dumps(value, default=str)}")


@contextmanager
def mounted_image(directory: Path, kind: str, size_bytes: int) -> Iterator[Path]:
    """Make an image with a filesystem of KIND ("xfs", "btrfs") and mount it for the length of the block."""
    if os.geteuid() != 0:
        pytest.skip("mounting a filesystem image needs root")
    image, target = directory / "disk", directory / kind
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    target.mkdir()
    subprocess.run(["mount", "-o", "loop,noatime", str(image), str(target)], check=True)
    try:
        yield target
    finally:
        # Lazily: pytest keeps what a failed test had open.
        subprocess.run(["umount", "--lazy", str(target)], check=True)
        image.unlink()


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """One pool for the whole session; whoever makes something in it removes it again."""
    if os.geteuid() != 0:
        pytest.skip("a pool needs root")
    path = tmp_path_factory.mktemp("session-pool") / "pool"
    pool = Pool.create(path, size_bytes=POOL_BYTES)
    yield pool
    try:
        pool.destroy()
    except BaseException:
        subprocess.run(["umount", "--lazy", str(path)], check=False)
        path.with_name("pool.img").unlink()
        raise


@pytest.fixture(scope="session")
def xfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of an XFS filesystem of 1 GiB."""
    with mounted_image(tmp_path_factory.mktemp("xfs"), "xfs", 1 << 30) as root:
        yield root


@pytest.fixture(scope="session")
def btrfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of a btrfs filesystem of 1 GiB."""
    with mounted_image(tmp_path_factory.mktemp("btrfs"), "btrfs", 1 << 30) as root:
        yield root


@pytest.fixture
def small_xfs(tmp_path: Path) -> Iterator[Path]:
    """The root of an XFS filesystem of the least size, 300 MiB, of one's own."""
    with mounted_image(tmp_path, "xfs", 300 << 20) as root:
        yield root


@pytest.fixture(params=["xfs", "btrfs"])
def reflink_directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An empty directory on a filesystem that shares blocks, of each kind in turn."""
    root: Path = request.getfixturevalue(request.param)
    directory = root / tmp_path.name
    directory.mkdir()
    return directory


@pytest.fixture
def memory_directory(tmp_path: Path) -> Iterator[Path]:
    """An empty directory on a tmpfs of its own: a filesystem that cannot share blocks."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    target = tmp_path / "memory"
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(target)], check=True)
    yield target
    subprocess.run(["umount", "--lazy", str(target)], check=True)
