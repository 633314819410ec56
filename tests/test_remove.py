"""Removal of trees laid out by an enemy: deep, wide, full of symlinks, mounts and odd names."""

# Names are arbitrary bytes here, or relative to descriptors: pathlib knows neither.
# ruff: noqa: PTH102, PTH118

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from webserv_rt.kernel.error import KernelError
from webserv_rt.kernel.remove import remove_tree
from webserv_rt.kernel.subvolume import create_subvolume, snapshot_subvolume


def remove(path: Path) -> None:
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        remove_tree(fd, path.name)
    finally:
        os.close(fd)


def dig(directory: Path, depth: int, *, name: str = "d", with_files: bool = False) -> None:
    """Nest DEPTH directories in DIRECTORY, deeper than any path can say."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        if with_files:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


@contextmanager
def few_descriptors(n: int) -> Iterator[None]:
    """Allow N more descriptors than are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + n, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_tree_of_every_kind_of_file_is_removed_and_its_neighbours_stay(reflink_directory: Path) -> None:
    tree = reflink_directory / "tree"
    (tree / "a" / "b" / "c").mkdir(parents=True)
    (tree / "a" / "empty").mkdir()
    (tree / "a" / "file").write_bytes(b"x" * 10_000)
    os.link(tree / "a" / "file", tree / "a" / "b" / "link")
    (tree / "symlink").symlink_to("a")
    (tree / "dangling").symlink_to("nowhere")
    os.mkfifo(tree / "fifo")
    os.mknod(tree / "whiteout", 0o20000, 0)
    (tree / "unreadable").mkdir(mode=0)
    (reflink_directory / "neighbour").write_bytes(b"x")
    remove(tree)
    assert os.listdir(reflink_directory) == ["neighbour"]


def test_what_is_not_there_is_no_error(reflink_directory: Path) -> None:
    remove(reflink_directory / "nothing")


@pytest.mark.parametrize("kind", ["file", "symlink", "fifo"])
def test_what_is_no_directory_is_removed_too(reflink_directory: Path, kind: str) -> None:
    target = reflink_directory / "target"
    (reflink_directory / "directory").mkdir()
    if kind == "file":
        target.touch()
    elif kind == "symlink":
        target.symlink_to("directory")
    else:
        os.mkfifo(target)
    remove(target)
    assert os.listdir(reflink_directory) == ["directory"]


def test_symlinks_are_not_followed(reflink_directory: Path) -> None:
    outside = reflink_directory / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    tree = reflink_directory / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "directory").symlink_to(outside)
    (tree / "below" / "up").symlink_to("../..")
    (tree / "below" / "file").symlink_to(outside / "precious")
    remove(tree)
    assert os.listdir(reflink_directory) == ["outside"]
    assert (outside / "precious").read_bytes() == b"x"


def test_depth_costs_no_descriptors(reflink_directory: Path) -> None:
    tree = reflink_directory / "tree"
    tree.mkdir()
    dig(tree, 5000, with_files=True)
    with few_descriptors(45):
        remove(tree)
    assert os.listdir(reflink_directory) == []


def test_long_names_at_depth_are_no_matter(reflink_directory: Path) -> None:
    tree = reflink_directory / "tree"
    tree.mkdir()
    dig(tree, 300, name="n" * 255)
    remove(tree)
    assert os.listdir(reflink_directory) == []


def test_names_that_the_removal_itself_uses_are_no_obstacle(reflink_directory: Path) -> None:
    tree = reflink_directory / "tree"
    tree.mkdir()
    for number in range(50):
        (tree / f".moved-{number}").touch()
        (tree / f"0{number}").mkdir()
        dig(tree / f"0{number}", 70, name=f".moved-{number}")
    remove(tree)
    assert os.listdir(reflink_directory) == []


def test_names_may_hold_any_bytes(reflink_directory: Path) -> None:
    tree = os.fsencode(reflink_directory / "tree")
    os.mkdir(tree)
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b" ", b"...", b"\x01"):
        os.mkdir(os.path.join(tree, name))
        Path(os.fsdecode(os.path.join(tree, name, name))).touch()
    remove(reflink_directory / "tree")
    assert os.listdir(reflink_directory) == []


def test_wide_tree_is_removed(reflink_directory: Path) -> None:
    tree = reflink_directory / "tree"
    for number in range(60):
        (tree / f"{number}").mkdir(parents=True)
        for index in range(60):
            (tree / f"{number}" / f"file with a name of some length {index}").touch()
            (tree / f"{number}" / f"directory {index}").mkdir()
    remove(tree)
    assert os.listdir(reflink_directory) == []


def test_mount_inside_the_tree_is_refused_by_name_and_not_entered(reflink_directory: Path) -> None:
    mounted = reflink_directory / "tree" / "below" / "mounted"
    mounted.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mounted)], check=True)
    try:
        (mounted / "precious").write_bytes(b"x")
        with pytest.raises(KernelError, match=r"^remove tree on tree/below/mounted: EXDEV"):
            remove(reflink_directory / "tree")
        assert (mounted / "precious").read_bytes() == b"x"
        with pytest.raises(KernelError) as caught:
            remove(mounted)
        assert caught.value.errno == errno.EXDEV
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
    remove(reflink_directory / "tree")
    assert os.listdir(reflink_directory) == []


def test_bind_mount_of_the_same_filesystem_is_not_entered(reflink_directory: Path) -> None:
    outside, mounted = reflink_directory / "outside", reflink_directory / "tree" / "mounted"
    outside.mkdir()
    mounted.mkdir(parents=True)
    (outside / "precious").write_bytes(b"x")
    subprocess.run(["mount", "--bind", str(outside), str(mounted)], check=True)
    try:
        with pytest.raises(KernelError) as caught:
            remove(reflink_directory / "tree")
        assert caught.value.errno == errno.EXDEV
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
    assert (outside / "precious").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc"])
def test_only_a_single_name_is_taken(reflink_directory: Path, name: str) -> None:
    fd = os.open(reflink_directory, os.O_RDONLY)
    try:
        with pytest.raises(KernelError, match="not a single name"):
            remove_tree(fd, name)
    finally:
        os.close(fd)


def test_two_removals_of_one_tree_do_not_disturb_each_other(reflink_directory: Path) -> None:
    for _ in range(10):
        tree = reflink_directory / "tree"
        for number in range(20):
            (tree / f"{number}" / "below").mkdir(parents=True)
            for index in range(20):
                (tree / f"{number}" / f"{index}").touch()
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(remove, [tree] * 3))
        assert os.listdir(reflink_directory) == []


def test_failure_keeps_no_descriptor(reflink_directory: Path) -> None:
    mounted = reflink_directory / "tree" / "mounted"
    mounted.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mounted)], check=True)
    before = len(os.listdir("/proc/self/fd"))
    try:
        with pytest.raises(KernelError):
            remove(reflink_directory / "tree")
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_subvolumes_are_removed_with_what_is_in_them(btrfs: Path, tmp_path: Path) -> None:
    directory = btrfs / tmp_path.name
    directory.mkdir()
    fd = os.open(directory, os.O_RDONLY)
    create_subvolume(fd, "outer")
    outer_fd = os.open(directory / "outer", os.O_RDONLY)
    (directory / "outer" / "file").write_bytes(b"x")
    create_subvolume(outer_fd, "inner")
    (directory / "outer" / "inner" / "file").write_bytes(b"x")
    inner_fd = os.open(directory / "outer" / "inner", os.O_RDONLY)
    snapshot_subvolume(inner_fd, outer_fd, "read-only")
    subprocess.run(
        ["btrfs", "property", "set", str(directory / "outer" / "read-only"), "ro", "true"], check=True
    )
    for opened in (inner_fd, outer_fd):
        os.close(opened)
    remove_tree(fd, "outer")
    os.close(fd)
    assert os.listdir(directory) == []
