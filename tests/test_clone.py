"""Reflink clones: exact, sharing, independent, and all or nothing."""

# Names are arbitrary bytes here, or relative to descriptors: pathlib knows neither.
# ruff: noqa: PTH101, PTH102, PTH115, PTH118, PTH211

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webserv_rt.kernel.clone import clone_file, clone_tree
from webserv_rt.kernel.error import KernelError
from webserv_rt.kernel.remove import remove_tree
from webserv_rt.kernel.subvolume import create_subvolume, snapshot_subvolume

MIB = 1 << 20


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def clone(source: Path, dest: Path, *, n_threads: int = 2, copy: bool = False) -> None:
    with opened(source) as source_fd, opened(dest.parent) as parent_fd:
        clone_tree(source_fd, parent_fd, dest.name, n_threads=n_threads, copy=copy)


def listing(root: Path) -> list[tuple[object, ...]]:
    """Return what a clone has to keep: of every entry its attributes, its content, its other names."""
    names: dict[int, str] = {}
    found: list[tuple[object, ...]] = []
    paths = [b".", *sorted(_walk(os.fsencode(root), b""))]
    for path in paths:
        full = os.path.join(os.fsencode(root), path)
        status = os.lstat(full)
        content: object = None
        if stat.S_ISREG(status.st_mode):
            content = Path(os.fsdecode(full)).read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(full)
        elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            content = status.st_rdev
        first_name = names.setdefault(status.st_ino, os.fsdecode(path)) if path != b"." else "."
        attributes = {
            name: os.getxattr(full, name, follow_symlinks=False)
            for name in os.listxattr(full, follow_symlinks=False)
        }
        is_directory = stat.S_ISDIR(status.st_mode)
        size = None if is_directory else status.st_size
        found.append(
            (
                path,
                (status.st_mode, status.st_uid, status.st_gid, size, status.st_mtime_ns),
                (first_name, None if is_directory else status.st_nlink),
                content,
                attributes,
            )
        )
    return found


def _walk(root: bytes, below: bytes) -> Iterator[bytes]:
    for entry in os.scandir(os.path.join(root, below)):
        path = os.path.join(below, entry.name)
        yield path
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, path)


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- trees of every shape ------------------------------------------------------------------------------

names = st.binary(min_size=1, max_size=40).filter(
    lambda name: not set(name) & {0, ord("/")} and name not in (b".", b"..")
)
attributes = st.fixed_dictionaries(
    {
        "mode": st.integers(0, 0o7777),
        "uid": st.sampled_from([0, 33, 999, 100_000]),
        "gid": st.sampled_from([0, 33, 999]),
        "mtime_ns": st.integers(0, 4_000_000_000_000_000_000),
        "xattrs": st.dictionaries(
            st.sampled_from(["user.a", "user.b", "trusted.overlay.opaque"]),
            st.binary(max_size=300),
            max_size=2,
        ),
    }
)
contents = st.one_of(
    st.just(b""), st.binary(max_size=100), st.integers(1, 40).map(lambda n: bytes([n]) * (n * 1500))
)
leaves = st.one_of(
    st.tuples(st.just("file"), attributes, contents),
    st.tuples(st.just("sparse"), attributes, st.integers(0, 5 * MIB)),
    st.tuples(
        st.just("symlink"), attributes, st.binary(min_size=1, max_size=100).filter(lambda t: 0 not in t)
    ),
    st.tuples(st.just("fifo"), attributes, st.none()),
    st.tuples(st.just("socket"), attributes, st.none()),
    st.tuples(st.just("device"), attributes, st.sampled_from([os.makedev(0, 0), os.makedev(1, 3)])),
    st.tuples(st.just("link"), attributes, st.none()),
)
trees = st.recursive(
    leaves,
    lambda children: st.tuples(
        st.just("directory"), attributes, st.dictionaries(names, children, max_size=6)
    ),
    max_leaves=25,
)
roots = st.tuples(st.just("directory"), attributes, st.dictionaries(names, trees, max_size=8))


Node = tuple[str, dict[str, Any], Any]


def build(path: bytes, node: Node, files: list[bytes]) -> None:
    kind, given_attributes, content = node
    if kind == "directory":
        os.mkdir(path)
        for name, child in content.items():
            build(os.path.join(path, name), child, files)
    elif kind == "link" and files:
        os.link(files[len(path) % len(files)], path, follow_symlinks=False)
        return
    elif kind == "symlink":
        os.symlink(content, path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o600, content)
    else:
        with open(path, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            elif isinstance(content, int):
                file.truncate(content)
                file.seek(content // 2)
                file.write(b"middle")
    if kind != "directory":
        files.append(path)
    decorate(path, kind, given_attributes)


def decorate(path: bytes, kind: str, given_attributes: dict[str, Any]) -> None:
    os.chown(path, given_attributes["uid"], given_attributes["gid"], follow_symlinks=False)
    if kind != "symlink":
        os.chmod(path, given_attributes["mode"])
    for name, value in given_attributes["xattrs"].items():
        if kind in ("file", "sparse", "directory") or name.startswith("trusted."):
            os.setxattr(path, name, value, follow_symlinks=False)
    times = (0, given_attributes["mtime_ns"])
    os.utime(path, ns=times, follow_symlinks=False)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(root=roots, n_threads=st.sampled_from([1, 2, 5]), copy=st.booleans())
def test_clone_equals_its_source(reflink_directory: Path, root: Node, n_threads: int, copy: bool) -> None:
    source, dest = reflink_directory / "source", reflink_directory / "dest"
    try:
        build(os.fsencode(source), root, [])
        before = listing(source)
        clone(source, dest, n_threads=n_threads, copy=copy)
        assert listing(dest) == before
        assert listing(source) == before
    finally:
        with opened(reflink_directory) as fd:
            remove_tree(fd, "source")
            remove_tree(fd, "dest")


def test_wide_and_branching_tree_is_cloned_by_many_threads(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    for number in range(20):
        directory = source / str(number) / "below"
        directory.mkdir(parents=True)
        for index in range(150):
            (directory / f"file-with-quite-a-long-name-{index}").write_bytes(b"x" * index)
    clone(source, reflink_directory / "dest", n_threads=8)
    assert listing(reflink_directory / "dest") == listing(source)


def test_result_does_not_depend_on_the_file_creation_mask(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    for mode in (0o600, 0o644, 0o666, 0o4755, 0o2777, 0o000):
        (source / oct(mode)).touch()
        (source / oct(mode)).chmod(mode)
    for mask in (0o000, 0o022, 0o077, 0o777):
        previous = os.umask(mask)
        try:
            clone(source, reflink_directory / oct(mask))
        finally:
            os.umask(previous)
        assert listing(reflink_directory / oct(mask)) == listing(source)


def test_set_id_bits_and_capabilities_survive_the_change_of_owner(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    program = source / "program"
    program.write_bytes(b"#!")
    os.chown(program, 33, 33)
    program.chmod(0o6755)
    capability = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)  # cap_net_bind_service, effective
    os.setxattr(program, "security.capability", capability)
    clone(source, reflink_directory / "dest")
    copied = reflink_directory / "dest" / "program"
    assert stat.S_IMODE(copied.stat().st_mode) == 0o6755
    assert os.getxattr(copied, "security.capability") == capability


def test_default_acl_of_a_directory_is_kept_but_not_inherited(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    (source / "file").write_bytes(b"x")
    undefined = 0xFFFFFFFF
    entries = [(1, 7, undefined), (2, 7, 33), (4, 5, undefined), (0x10, 7, undefined), (0x20, 0, undefined)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(source, "system.posix_acl_default", acl)
    clone(source, reflink_directory / "dest")
    assert os.getxattr(reflink_directory / "dest", "system.posix_acl_default") == acl
    assert os.listxattr(reflink_directory / "dest" / "file") == []


def test_tree_cloned_into_a_set_group_id_directory_keeps_its_groups(reflink_directory: Path) -> None:
    source, parent = reflink_directory / "source", reflink_directory / "parent"
    source.mkdir()
    (source / "below").mkdir()
    (source / "file").touch()
    parent.mkdir()
    os.chown(parent, 0, 33)
    parent.chmod(0o2777)
    clone(source, parent / "dest")
    assert listing(parent / "dest") == listing(source)


# -- sharing -------------------------------------------------------------------------------------------


def used_bytes(directory: Path) -> int:
    with opened(directory) as fd:
        os.sync()
        status = os.fstatvfs(fd)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


@pytest.mark.parametrize(("copy", "least", "most"), [(False, 0, 2 * MIB), (True, 31 * MIB, 36 * MIB)])
def test_clone_shares_blocks_unless_a_copy_is_asked_for(
    reflink_directory: Path, copy: bool, least: int, most: int
) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    (source / "file").write_bytes(os.urandom(32 * MIB))
    before = used_bytes(reflink_directory)
    clone(source, reflink_directory / "dest", copy=copy)
    assert least <= used_bytes(reflink_directory) - before <= most


def test_writing_to_a_clone_leaves_its_source_alone(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    (source / "file").write_bytes(b"a" * 20_000)
    clone(source, reflink_directory / "dest")
    with (reflink_directory / "dest" / "file").open("r+b") as file:
        file.write(b"b" * 5000)
    assert (source / "file").read_bytes() == b"a" * 20_000


def test_holes_stay_holes_in_a_copy(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    with (source / "file").open("wb") as file:
        file.seek(100 * MIB)
        file.write(b"end")
        file.truncate(200 * MIB)
    clone(source, reflink_directory / "dest", copy=True)
    copied = (reflink_directory / "dest" / "file").stat()
    assert copied.st_size == 200 * MIB
    assert copied.st_blocks * 512 <= 2 * MIB


# -- one file ------------------------------------------------------------------------------------------


def test_file_is_cloned_with_its_attributes(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.write_bytes(b"content" * 1000)
    os.setxattr(source, "user.note", b"kept")
    os.chown(source, 33, 34)
    source.chmod(0o4751)
    os.utime(source, ns=(0, 1_500_000_000_123_456_789))
    with opened(reflink_directory) as fd:
        clone_file(fd, "source", fd, "dest")
    dest = reflink_directory / "dest"
    status = dest.stat()
    assert dest.read_bytes() == b"content" * 1000
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (33, 34, 0o4751)
    assert status.st_mtime_ns == 1_500_000_000_123_456_789
    assert os.getxattr(dest, "user.note") == b"kept"


def test_cloning_a_file_over_another_is_refused_and_leaves_it(reflink_directory: Path) -> None:
    (reflink_directory / "source").write_bytes(b"new")
    (reflink_directory / "dest").write_bytes(b"old")
    with opened(reflink_directory) as fd, pytest.raises(KernelError) as caught:
        clone_file(fd, "source", fd, "dest")
    assert caught.value.errno == errno.EEXIST
    assert (reflink_directory / "dest").read_bytes() == b"old"


def test_cloning_a_directory_as_a_file_is_refused(reflink_directory: Path) -> None:
    (reflink_directory / "source").mkdir()
    with opened(reflink_directory) as fd, pytest.raises(KernelError) as caught:
        clone_file(fd, "source", fd, "dest")
    assert caught.value.errno == errno.EISDIR


def test_symlink_is_cloned_as_a_symlink(reflink_directory: Path) -> None:
    (reflink_directory / "source").symlink_to("/nowhere")
    with opened(reflink_directory) as fd:
        clone_file(fd, "source", fd, "dest")
    assert os.readlink(reflink_directory / "dest") == "/nowhere"


# -- refusals, after which nothing remains -------------------------------------------------------------


def test_filesystem_that_cannot_share_is_refused_by_the_name_of_the_file(memory_directory: Path) -> None:
    source = memory_directory / "source"
    (source / "below").mkdir(parents=True)
    (source / "below" / "data").write_bytes(b"x")
    with pytest.raises(KernelError, match=r"^clone file on below/data: (ENOTSUP|EOPNOTSUPP) "):
        clone(source, memory_directory / "dest")
    assert os.listdir(memory_directory) == ["source"]
    clone(source, memory_directory / "dest", copy=True)
    assert listing(memory_directory / "dest") == listing(source)


def test_clone_to_another_filesystem_is_refused_by_the_name_of_the_file(
    reflink_directory: Path, memory_directory: Path
) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    (source / "data").write_bytes(b"x")
    with pytest.raises(KernelError, match=r"^clone file on data: EXDEV"):
        clone(source, memory_directory / "dest")
    assert os.listdir(memory_directory) == []
    expected = pytest.raises(KernelError, match=r"^clone file on source/data: EXDEV")
    with opened(reflink_directory) as fd, opened(memory_directory) as memory_fd, expected:
        clone_file(fd, "source/data", memory_fd, "dest")
    assert os.listdir(memory_directory) == []


def test_existing_destination_is_refused_and_left_alone(reflink_directory: Path) -> None:
    source, dest = reflink_directory / "source", reflink_directory / "dest"
    source.mkdir()
    dest.mkdir()
    (dest / "precious").write_bytes(b"x")
    with pytest.raises(KernelError) as caught:
        clone(source, dest)
    assert caught.value.errno == errno.EEXIST
    assert (dest / "precious").read_bytes() == b"x"


def test_mount_inside_the_source_is_refused(reflink_directory: Path) -> None:
    mounted = reflink_directory / "source" / "mounted"
    mounted.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mounted)], check=True)
    try:
        with pytest.raises(KernelError, match=r"^open directory on mounted: EXDEV"):
            clone(reflink_directory / "source", reflink_directory / "dest")
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
    assert os.listdir(reflink_directory) == ["source"]


def test_tree_is_not_cloned_into_itself(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    (source / "below").mkdir(parents=True)
    with pytest.raises(KernelError, match="cannot be cloned into itself"):
        clone(source, source / "below" / "dest")
    assert os.listdir(source / "below") == []


def test_tree_deeper_than_a_path_can_say_is_refused(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    fd = os.open(source, os.O_RDONLY)
    for _ in range(50):
        os.mkdir("d" * 200, dir_fd=fd)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    with pytest.raises(KernelError) as caught:
        clone(source, reflink_directory / "dest")
    assert caught.value.errno == errno.ENAMETOOLONG
    assert os.listdir(reflink_directory) == ["source"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 256])
def test_destination_must_be_a_single_name(reflink_directory: Path, name: str) -> None:
    with opened(reflink_directory) as fd, pytest.raises(KernelError, match="not a single name"):
        clone_tree(fd, fd, name)


@pytest.mark.parametrize("n_threads", [0, -1, 65])
def test_number_of_threads_is_checked(reflink_directory: Path, n_threads: int) -> None:
    with opened(reflink_directory) as fd, pytest.raises(KernelError, match=f"{n_threads} threads"):
        clone_tree(fd, fd, "dest", n_threads=n_threads)
    assert os.listdir(reflink_directory) == []


def test_full_filesystem_leaves_nothing_of_the_clone(small_xfs: Path) -> None:
    source = small_xfs / "source"
    source.mkdir()
    for number in range(400):
        (source / f"{number}").write_bytes(os.urandom(5000))
    (source / "big").write_bytes(os.urandom(60 * MIB))
    before = listing(source)
    fill(small_xfs / "filler")
    for copy in (True, False):
        for number in range(200):  # clones need few blocks: go on until there are none
            try:
                clone(source, small_xfs / f"dest-{number}", copy=copy)
            except KernelError as error:
                assert error.errno == errno.ENOSPC
                assert not (small_xfs / f"dest-{number}").exists()
                break
        else:
            pytest.fail("the filesystem never filled up")
    assert listing(source) == before


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


# -- resources -----------------------------------------------------------------------------------------


def test_no_descriptor_and_no_thread_remains(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "file").write_bytes(b"x")
    before = n_descriptors(), len(os.listdir("/proc/self/task"))
    for number in range(20):
        clone(source, reflink_directory / f"dest-{number}", n_threads=4)
        with pytest.raises(KernelError):
            clone(source, reflink_directory / f"dest-{number}", n_threads=4)
    assert (n_descriptors(), len(os.listdir("/proc/self/task"))) == before


def test_one_source_is_cloned_by_many_callers_at_once(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    for number in range(100):
        (source / f"{number}").write_bytes(b"x" * number)
    expected = listing(source)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: clone(source, reflink_directory / f"dest-{number}"), range(40)))
    for number in range(40):
        assert listing(reflink_directory / f"dest-{number}") == expected


def test_other_python_threads_run_during_a_clone(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    for number in range(3000):
        (source / f"{number}").touch()
    n_ticks, done = 0, threading.Event()

    def clone_then_tell() -> None:
        clone(source, reflink_directory / "dest", n_threads=1)
        done.set()

    thread = threading.Thread(target=clone_then_tell)
    thread.start()
    while not done.wait(0.001):
        n_ticks += 1
    thread.join()
    assert n_ticks >= 3


# -- subvolumes ----------------------------------------------------------------------------------------


@pytest.fixture
def btrfs_directory(btrfs: Path, tmp_path: Path) -> Path:
    directory = btrfs / tmp_path.name
    directory.mkdir()
    return directory


def test_subvolume_is_cloned_by_a_snapshot(btrfs_directory: Path) -> None:
    with opened(btrfs_directory) as fd:
        create_subvolume(fd, "source")
        (btrfs_directory / "source" / "file").write_bytes(b"x" * 10_000)
        before = listing(btrfs_directory / "source")
        with opened(btrfs_directory / "source") as source_fd:
            snapshot_subvolume(source_fd, fd, "dest")
        assert listing(btrfs_directory / "dest") == before
        (btrfs_directory / "dest" / "file").write_bytes(b"y")
        assert listing(btrfs_directory / "source") == before
        for name in ("source", "dest"):
            remove_tree(fd, name)
    assert os.listdir(btrfs_directory) == []


def test_snapshot_of_what_is_no_subvolume_is_refused(reflink_directory: Path) -> None:
    (reflink_directory / "source").mkdir()
    refused = pytest.raises(KernelError, match="the source is no subvolume")
    with opened(reflink_directory) as fd, opened(reflink_directory / "source") as source_fd, refused:
        snapshot_subvolume(source_fd, fd, "dest")


def test_subvolume_on_another_filesystem_is_refused(xfs: Path) -> None:
    with opened(xfs) as fd, pytest.raises(KernelError, match="not on btrfs"):
        create_subvolume(fd, "subvolume")


def test_socket_bound_in_the_source_is_cloned_as_a_dead_one(reflink_directory: Path) -> None:
    source = reflink_directory / "source"
    source.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(source, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        server.listen()
        clone(source, reflink_directory / "dest")
    assert stat.S_ISSOCK((reflink_directory / "dest" / "socket").lstat().st_mode)
