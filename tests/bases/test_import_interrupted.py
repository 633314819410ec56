"""However an import ends, the bases hold all of it or nothing."""

from __future__ import annotations

import errno
import gzip
import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webserv_rt.errors import WebservError
from webserv_rt.storage.base import list_bases, open_base
from webserv_rt.storage.errors import BaseExists, ImportRefused, PoolFull

# Ends itself before the STEP-th thing that the import does to the filesystem; prints how many there were.
SCRIPT = """
import itertools, os, signal, sys
from pathlib import Path
from webserv_rt.storage.importing import import_base

source, bases, staging, how, step = sys.argv[1:]
steps = itertools.count(1)  # atomic: the import reads in several threads
NAMES = "mkdir link symlink rename chmod chown utime remove setxattr truncate listdir getxattr listxattr"
EVENTS = {"open", *("os." + name for name in NAMES.split())}

def hook(event, arguments):
    if event in EVENTS and next(steps) == int(step):
        os.kill(os.getpid(), getattr(signal, how))

sys.addaudithook(hook)
import_base(source, "b", bases=Path(bases), staging=Path(staging), site=b"x")
print(next(steps) - 1)
"""


def _import(store: Any, source: Path, how: str, step: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", SCRIPT, source, store.bases, store.staging, how, str(step)]
    return subprocess.run(command, capture_output=True)


def _empty(store: Any) -> None:
    for directory in (store.bases, store.staging):
        subprocess.run(["rm", "-rf", *directory.iterdir()], check=True)


@pytest.fixture
def source(tmp_path: Path, rich_tree: Path, gnu_tar: Any) -> Path:
    path = tmp_path / "root.tar"
    path.write_bytes(gnu_tar(rich_tree))
    return path


def _steps(n_steps: int) -> list[int]:
    """Return some steps: the last ones, where the base is sealed and moved, all of them."""
    return sorted({*random.Random(1).sample(range(1, n_steps), 20), *range(n_steps - 12, n_steps + 1)})


@pytest.mark.slow
def test_kill_at_any_step_leaves_no_base_or_a_whole_one(store: Any, source: Path) -> None:
    n_steps = int(_import(store, source, "SIGKILL", 10**9).stdout)
    digest = open_base(store.bases, "b").record.digest
    _empty(store)
    n_whole = 0
    for step in _steps(n_steps):
        done = _import(store, source, "SIGKILL", step)
        assert done.returncode == -signal.SIGKILL, (step, done.stderr)
        for base in list_bases(store.bases):
            assert base.record.digest == digest
            base.verify()
            n_whole += 1
        _empty(store)
    assert n_whole < 8  # those after the rename


@pytest.mark.slow
def test_ctrl_c_at_any_step_leaves_nothing_or_a_whole_base(store: Any, source: Path) -> None:
    n_steps = int(_import(store, source, "SIGINT", 10**9).stdout)
    _empty(store)
    for step in _steps(n_steps):
        done = _import(store, source, "SIGINT", step)
        assert b"KeyboardInterrupt" in done.stderr, (step, done.stderr)
        assert list(store.staging.iterdir()) == [], step
        for base in list_bases(store.bases):
            base.verify()
        _empty(store)


@pytest.mark.slow
def test_kill_at_any_time_leaves_no_base_or_a_whole_one(store: Any, source: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, source, store.bases, store.staging, "SIGKILL", str(10**9)]
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    whole_s = time.monotonic() - started
    _empty(store)
    for number in range(20):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(whole_s * (0.3 + number / 25))
        process.kill()
        process.wait()
        for base in list_bases(store.bases):
            base.verify()
        _empty(store)


def test_base_that_exists_is_kept(store: Any, tar: Any) -> None:
    store.take(tar.of(tar.file("old")))
    with pytest.raises(BaseExists, match="webserv-rt base rm b"):
        store.take(tar.of(tar.file("new")))
    assert [entry.path for entry in open_base(store.bases, "b").entries()] == [".", "old"]


def test_name_taken_meanwhile_is_refused(store: Any, tar: Any) -> None:
    def take_it(*_: object) -> None:
        if not (store.bases / "b").exists():
            store.take(tar.of(tar.file("faster")))

    with pytest.raises(BaseExists):
        store.take(tar.of(tar.file("slower", b"x" * 100)), progress=take_it)
    assert [entry.path for entry in open_base(store.bases, "b").entries()] == [".", "faster"]


def test_check_that_fails_leaves_nothing(store: Any, tar: Any) -> None:
    def check(image: object) -> None:
        assert image is None
        raise WebservError("the site spec does not fit")

    with pytest.raises(WebservError, match="does not fit"):
        store.take(tar.of(tar.file("a")), check=check)
    assert store.is_clean()


def test_staging_on_another_filesystem_is_refused_in_the_end(store: Any, small: Any, tar: Any) -> None:
    small.bases = store.bases
    with pytest.raises(WebservError, match="Invalid cross-device link"):
        small.take(tar.of(tar.file("a")))
    assert store.is_clean()


@pytest.fixture
def small(tmp_path: Path, new_store: Any) -> Iterator[Any]:
    """A store of 64 MiB on a filesystem of its own, which must be as free in the end as it was."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=2000", "test", directory], check=True)
    try:
        store = new_store(directory)
        free = os.statvfs(directory)
        yield store
        assert list(store.staging.iterdir()) == []
        after = os.statvfs(directory)
        assert (after.f_bfree, after.f_ffree) == (free.f_bfree, free.f_ffree)
    finally:
        subprocess.run(["umount", directory], check=True)


def test_file_that_does_not_fit_is_refused_with_figures(small: Any, tar: Any) -> None:
    with pytest.raises(PoolFull, match=r"'big' needs 60\.0 MiB, 4\d\.\d MiB are free.*pool grow") as caught:
        small.take(tar.of(tar.file("big", bytes(60 << 20))))
    assert caught.value.needed is not None and caught.value.needed >= 60 << 20
    assert caught.value.free is not None and caught.value.free < 64 << 20


def test_many_files_that_do_not_fit_together_are_refused(small: Any, tar: Any) -> None:
    members = [tar.file(str(number), bytes(1 << 20)) for number in range(60)]
    with pytest.raises(PoolFull):
        small.take(tar.of(*members))


def test_directory_that_does_not_fit_is_refused(small: Any, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(6):
        (tmp_path / f"source/{number}").write_bytes(b"x" * (10 << 20))
    with pytest.raises(PoolFull):
        small.take(tmp_path / "source")


def test_empty_files_without_end_are_refused(small: Any, tar: Any) -> None:
    with pytest.raises(PoolFull):
        small.take(tar.of(*(tar.file(str(number)) for number in range(3000))))


def test_image_that_does_not_fit_is_refused(small: Any, tar: Any, images: Any, tmp_path: Path) -> None:
    layers = [tar.bytes_of(tar.file(str(number), bytes(20 << 20))) for number in range(3)]
    with pytest.raises(PoolFull):
        small.take(images.layout(tmp_path / "layout", *layers))


def test_compressed_image_archive_that_does_not_fit_is_refused(small: Any, tar: Any, images: Any) -> None:
    archive = images.docker_archive(tar.bytes_of(tar.file("a", bytes(60 << 20))))
    with pytest.raises(PoolFull, match="the image archive"):
        small.take(io.BytesIO(gzip.compress(archive, 1)))


def test_pool_that_fills_up_meanwhile_is_named(small: Any, tar: Any) -> None:
    filler = small.bases.parent / "filler"

    def fill(done: int, total: int | None) -> None:
        if done > 2 << 20 and not filler.exists():
            status = os.statvfs(small.bases)
            filler.write_bytes(bytes(status.f_bavail * status.f_frsize - (8 << 20)))

    members = [tar.file(str(number), bytes(4 << 20)) for number in range(8)]
    with pytest.raises(PoolFull, match=r"the pool is full: .* does not fit"):
        small.take(tar.of(*members), progress=fill)
    filler.unlink()


def test_error_of_the_kernel_names_the_entry(store: Any, tar: Any) -> None:
    headers = {"SCHILY.xattr.user.note": "x"}
    with pytest.raises(ImportRefused, match=f"write 'a/link': {os.strerror(errno.EPERM)}"):
        store.take(tar.of(tar.symlink("a/link", "x", pax_headers=headers)))
    assert store.is_clean()
