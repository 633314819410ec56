"""Directories: everything is copied, nothing is followed."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webserv_rt.storage.errors import ImportRefused, PoolFull, SourceUnavailable, TreeUnreadable


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A directory on which a small filesystem of its own is mounted."""
    directory = tmp_path / "source/mounted"
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "test", directory], check=True)
    yield directory
    subprocess.run(["umount", directory], check=True)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Any]:
    """Make directories in one another; they go at the end, as pytest's own removal recurses too deep."""

    def make(name: str, depth: int) -> Path:
        source = tmp_path / "source"
        source.mkdir()
        fd = os.open(source, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir(name, dir_fd=fd)
            below = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(fd)
        return source

    yield make
    subprocess.run(["rm", "-rf", tmp_path / "source", *(tmp_path / "bases").glob("*")], check=True)


def test_every_kind_of_entry_and_metadata_arrives(
    store: Any, rich_tree: Path, rsync_differences: Any, gnu_tar: Any
) -> None:
    base = store.take(rich_tree)
    assert rsync_differences(rich_tree, base.root) == ""
    capability = os.getxattr(rich_tree / "usr/bin/ping", "security.capability")
    assert os.getxattr(base.root / "usr/bin/zping", "security.capability") == capability
    assert os.getxattr(base.root / "var/dangling", "trusted.note", follow_symlinks=False) == b"link"
    # GNU tar as a second opinion: to the byte, with times to the nanosecond.
    options = ["--format=posix", "--xattrs", "--xattrs-include=*", "--sort=name"]
    options.append("--pax-option=exthdr.name=x,delete=atime,delete=ctime")
    assert gnu_tar(base.root, *options) == gnu_tar(rich_tree, *options)
    base.verify()


def test_sparse_files_stay_sparse(store: Any, rich_tree: Path) -> None:
    base = store.take(rich_tree)
    copy = base.root / "var/sparse"
    assert copy.stat().st_blocks == (rich_tree / "var/sparse").stat().st_blocks
    assert copy.read_bytes() == (rich_tree / "var/sparse").read_bytes()


def test_sockets_are_left_out(store: Any, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "source/s"))
        (tmp_path / "source/f").touch()
        base = store.take(tmp_path / "source")
    assert [path.name for path in base.root.iterdir()] == ["f"]


def test_hard_link_to_outside_becomes_a_file_of_its_own(store: Any, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "outside").write_text("x")
    os.link(tmp_path / "outside", tmp_path / "source/f")
    base = store.take(tmp_path / "source")
    assert (base.root / "f").stat().st_nlink == 1
    assert [entry.hard_link for entry in base.entries()] == ["", ""]


def test_reading_leaves_access_times_alone(store: Any, rich_tree: Path) -> None:
    path = rich_tree / "etc/passwd"
    os.utime(path, ns=(0, 10**18))
    store.take(rich_tree)
    assert path.stat().st_atime_ns == 0


def test_copy_shares_no_data_with_the_source(store: Any, rich_tree: Path) -> None:
    base = store.take(rich_tree)
    with (rich_tree / "usr/bin/su").open("r+b") as file:
        file.write(b"changed")
    base.verify()


def test_other_filesystem_in_the_tree_is_refused_by_name(store: Any, mounted: Path) -> None:
    with pytest.raises(TreeUnreadable, match=r"'mounted'.*unmount it first"):
        store.take(mounted.parent)
    assert store.is_clean()


def test_layer_of_overlayfs_is_refused(store: Any, tmp_path: Path) -> None:
    (tmp_path / "upper").mkdir()
    os.mknod(tmp_path / "upper/gone", 0o20000, os.makedev(0, 0))
    with pytest.raises(ImportRefused, match="layer directory"):
        store.take(tmp_path / "upper")
    (tmp_path / "upper/gone").unlink()
    (tmp_path / "upper/d").mkdir()
    os.setxattr(tmp_path / "upper/d", "trusted.overlay.opaque", b"y")
    with pytest.raises(ImportRefused, match="merged tree"):
        store.take(tmp_path / "upper")
    assert store.is_clean()


def test_tree_that_holds_the_pool_is_refused(store: Any, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="holds the pool"):
        store.take(tmp_path)


def test_directory_that_is_not_there_is_named(store: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="nothing at"):
        store.take(tmp_path / "nothing")


def test_file_that_shrinks_meanwhile_is_refused(store: Any, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    path = tmp_path / "source/f"
    path.write_bytes(b"x" * (5 << 20))
    with pytest.raises(ImportRefused, match="shorter"):
        store.take(tmp_path / "source", progress=lambda done, total: os.truncate(path, 2 << 20))
    assert store.is_clean()


def test_progress_ends_with_all_bytes(store: Any, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(5):
        (tmp_path / f"source/{number}").write_bytes(b"x" * (3 << 20))
    seen: list[tuple[int, int | None]] = []
    store.take(tmp_path / "source", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (15 << 20, 15 << 20)
    assert len(seen) > 10
    assert seen == sorted(seen)


def test_deep_tree_needs_few_descriptors(store: Any, deep: Any) -> None:
    source = deep("d", 1500)
    (source / "f").write_bytes(b"x" * 100)
    seen: list[int] = []
    base = store.take(source, progress=lambda *_: seen.append(_n_descriptors()))
    assert base.record.n_entries == 1502
    assert max(seen) < _n_descriptors() + 15
    base.verify()


def test_path_longer_than_a_path_can_be_is_refused(store: Any, deep: Any) -> None:
    with pytest.raises(TreeUnreadable, match="longer than 4096"):
        store.take(deep("d" * 200, 30))


def test_tree_with_huge_hole_is_refused_as_too_large(store: Any, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with (tmp_path / "source/lastlog").open("wb") as file:
        file.truncate(8 << 40)
    with pytest.raises(PoolFull, match=r"'lastlog' with its holes needs 8192\.0 GiB"):
        store.take(tmp_path / "source")
    assert store.is_clean()


def _n_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
