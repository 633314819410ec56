"""Tar archives of root filesystems, in the formats that tar programs write."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from webserv_rt.storage.errors import ImportRefused, SourceDamaged, SourceUnavailable

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "gzip members": lambda data: gzip.compress(data[:1000]) + gzip.compress(data[1000:]) + b"\0" * 100,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,  # as the zstd program does
    "zstd frames": lambda data: (
        b"\x50\x2a\x4d\x18\4\0\0\0skip" + zstandard.compress(data[:1000]) + zstandard.compress(data[1000:])
    ),
}


def test_everything_that_gnu_tar_keeps_arrives(
    store: Any, rich_tree: Path, gnu_tar: Any, rsync_differences: Any
) -> None:
    base = store.take(io.BytesIO(gnu_tar(rich_tree)))
    assert rsync_differences(rich_tree, base.root) == ""
    assert os.getxattr(base.root / "var/dangling", "trusted.note", follow_symlinks=False) == b"link"
    base.verify()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compression_is_recognised(store: Any, rich_tree: Path, gnu_tar: Any, compression: str) -> None:
    data = gnu_tar(rich_tree)
    base = store.take(io.BytesIO(COMPRESSIONS[compression](data)))
    assert base.record.digest == store.take(io.BytesIO(data), "plain").record.digest


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd"])
def test_damage_under_compression_is_found(store: Any, tar: Any, compression: str) -> None:
    data = bytearray(COMPRESSIONS[compression](tar.bytes_of(tar.file("a", os.urandom(100_000)))))
    data[len(data) // 2] ^= 0x55
    with pytest.raises(SourceDamaged):
        store.take(io.BytesIO(bytes(data)))
    assert store.is_clean()


@pytest.mark.parametrize("compression", ["none", "gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_archive_that_is_cut_off_is_refused(
    store: Any, rich_tree: Path, gnu_tar: Any, compression: str, share: float
) -> None:
    data = gnu_tar(rich_tree, "--format=posix", "-b1")
    data = COMPRESSIONS[compression](data)
    with pytest.raises(SourceDamaged):
        store.take(io.BytesIO(data[: int(len(data) * share)]))
    assert store.is_clean()


def test_archive_without_its_end_marker_is_refused(store: Any, tar: Any) -> None:
    data = tar.bytes_of(tar.file("a", b"a"), format=tarfile.USTAR_FORMAT)
    with pytest.raises(SourceDamaged, match="end marker"):
        store.take(io.BytesIO(data[:1024]))


def test_damaged_header_is_no_end_of_archive(store: Any, tar: Any) -> None:
    data = bytearray(tar.bytes_of(tar.file("a", b"a"), tar.file("b", b"b"), format=tarfile.USTAR_FORMAT))
    data[1024 + 5] ^= 1
    with pytest.raises(SourceDamaged, match="checksum"):
        store.take(io.BytesIO(bytes(data)))


@pytest.mark.parametrize("data", [b"", b"x", b"no archive " * 1000, b"PK\3\4" + b"\1" * 2000])
def test_what_is_no_archive_is_refused(store: Any, data: bytes) -> None:
    with pytest.raises(SourceDamaged):
        store.take(io.BytesIO(data))


@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_every_format_of_gnu_tar_is_read(
    store: Any, tmp_path: Path, gnu_tar: Any, rsync_differences: Any, format: str
) -> None:
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / "a/file").write_bytes(b"content" * 100)
    os.link(tree / "a/file", tree / "a/link")
    (tree / "symlink").symlink_to("a/file")
    if format != "v7":
        os.mknod(tree / "null", 0o20666, os.makedev(1, 3))
    if format in ("oldgnu", "gnu", "posix"):
        (tree / ("long" * 40)).mkdir()
        (tree / ("long" * 40) / ("name" * 50)).symlink_to("target" * 40)
    if format in ("ustar", "posix"):
        (tree / ("p" * 60) / ("q" * 60)).mkdir(parents=True)
        (tree / ("p" * 60) / ("q" * 60) / "in the prefix").write_bytes(b"x")
    for path in [tree, *tree.rglob("*")]:
        os.utime(path, (1_600_000_000, 1_600_000_000), follow_symlinks=False)
    base = store.take(io.BytesIO(gnu_tar(tree, f"--format={format}")))
    assert rsync_differences(tree, base.root) == ""


@pytest.mark.parametrize("options", ["--format=oldgnu", "--format=gnu", "0.0", "0.1", "1.0"])
def test_sparse_files_stay_sparse_in_every_format(
    store: Any, tmp_path: Path, gnu_tar: Any, options: str
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with (tree / "sparse").open("wb") as file:
        for number in range(60):  # more pieces than one header has room for
            file.seek(number << 20)
            file.write(b"piece %d" % number * 2000)
        file.truncate(80 << 20)
    with (tree / "hole").open("wb") as file:
        file.truncate(5 << 20)
    formats = [options] if options.startswith("-") else ["--format=posix", f"--sparse-version={options}"]
    base = store.take(io.BytesIO(gnu_tar(tree, "--sparse", *formats)))
    for name in ("sparse", "hole"):
        assert (base.root / name).read_bytes() == (tree / name).read_bytes()
        assert (base.root / name).stat().st_blocks == (tree / name).stat().st_blocks
    base.verify()


def test_later_entry_replaces_an_earlier_one_as_tar_does(store: Any, tar: Any, tmp_path: Path) -> None:
    members = [
        tar.file("a", b"first"),
        tar.file("a", b"second", mode=0o600),
        tar.file("b", b"file"),
        tar.directory("b"),
        tar.file("b/x", b"x"),
        tar.directory("c"),
        tar.file("c", b"file"),
        tar.file("d/kept", b"d"),
        tar.directory("d", mode=0o700),
        tar.symlink("e", "d"),
        tar.directory("e"),
        tar.file("e/x", b"inside"),
        tar.file("f", b"one"),
        tar.hard_link("g", "f"),
        tar.file("f", b"two"),
        tar.symlink("h", "a"),
        tar.file("h", b"no link"),
    ]
    data = tar.bytes_of(*members)
    base = store.take(io.BytesIO(data))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    subprocess.run(["tar", "-C", theirs, "-xpf", "-"], input=data, check=True)
    command = ["diff", "-r", "--no-dereference", theirs, base.root]
    assert subprocess.run(command, stdout=subprocess.PIPE).stdout == b""
    for path in theirs.rglob("*"):
        ours = (base.root / path.relative_to(theirs)).lstat()
        assert (ours.st_mode, ours.st_nlink) == (path.lstat().st_mode, path.lstat().st_nlink)


def test_parents_that_are_not_in_the_archive_are_plain_directories(store: Any, tar: Any) -> None:
    base = store.take(tar.of(tar.file("a/b/c", b"x", uid=5, mtime=7)))
    for directory in ("", "a", "a/b"):
        status = (base.root / directory).stat()
        assert (status.st_mode, status.st_uid, status.st_mtime) == (0o40755, 0, 0)


def test_metadata_of_the_root_comes_from_the_archive(store: Any, tar: Any) -> None:
    base = store.take(tar.of(tar.directory("./", mode=0o710, uid=3, mtime=99), tar.file("./x", b"x")))
    status = base.root.stat()
    assert (status.st_mode, status.st_uid, status.st_mtime) == (0o40710, 3, 99)


def test_names_are_normalised(store: Any, tar: Any) -> None:
    base = store.take(tar.of(tar.file("./a//./b", b"x")))
    assert [entry.path for entry in base.entries()] == [".", "a", "a/b"]


def test_names_that_differ_in_case_are_two(store: Any, tar: Any) -> None:
    base = store.take(tar.of(tar.file("readme", b"x"), tar.file("README", b"y")))
    assert (base.root / "readme").read_bytes() + (base.root / "README").read_bytes() == b"xy"


def test_whiteout_names_mean_nothing_in_a_plain_archive(store: Any, tar: Any) -> None:
    base = store.take(tar.of(tar.file("a", b"x"), tar.file(".wh.a")))
    assert sorted(path.name for path in base.root.iterdir()) == [".wh.a", "a"]


def test_hard_link_to_a_symlink_is_one(store: Any, tar: Any) -> None:
    base = store.take(tar.of(tar.symlink("a", "/etc/passwd"), tar.hard_link("b", "a")))
    assert (base.root / "b").readlink() == Path("/etc/passwd")
    assert (base.root / "a").lstat().st_ino == (base.root / "b").lstat().st_ino


def test_writing_over_a_hard_link_leaves_the_other_name_alone(store: Any, tar: Any) -> None:
    base = store.take(tar.of(tar.file("a", b"1"), tar.hard_link("b", "a"), tar.file("b", b"2")))
    assert (base.root / "a").read_bytes() == b"1"


def test_setuid_survives_owner_and_content(store: Any, tar: Any) -> None:
    base = store.take(tar.of(tar.file("su", b"x" * 10, mode=0o6711, uid=1, gid=2)))
    assert (base.root / "su").stat().st_mode == 0o106711


def test_default_acl_of_a_directory_is_not_inherited_during_the_import(
    store: Any, tar: Any, tmp_path: Path
) -> None:
    acl = "user::rwx,user:1000:rwx,group::r-x,mask::rwx,other::---"
    members = [tar.directory("d", pax_headers={"SCHILY.acl.default": acl}), tar.file("d/f", b"x", mode=0o644)]
    base = store.take(tar.of(*members))
    assert os.listxattr(base.root / "d/f") == []
    assert (base.root / "d/f").stat().st_mode == 0o100644
    theirs = subprocess.run(["getfacl", "-dnpc", base.root / "d"], stdout=subprocess.PIPE, text=True).stdout
    assert theirs.split() == ["user::rwx", "user:1000:rwx", "group::r-x", "mask::rwx", "other::---"]


def test_acls_as_text_arrive(store: Any, tmp_path: Path, gnu_tar: Any, rsync_differences: Any) -> None:
    tree = tmp_path / "tree"
    (tree / "d").mkdir(parents=True)
    (tree / "f").touch()
    subprocess.run(["setfacl", "-m", "u:70001:rw,u:70004:r,g:70002:x,d:g:70003:rwx", tree / "d"], check=True)
    subprocess.run(["setfacl", "-m", "u:70001:rwx,m::r", tree / "f"], check=True)
    base = store.take(io.BytesIO(gnu_tar(tree, "--format=posix", "--acls")))
    assert base.record.digest == store.take(tree, "directory").record.digest
    assert rsync_differences(tree, base.root) == ""


def test_volume_label_and_global_header_are_understood(store: Any, tar: Any) -> None:
    stream = io.BytesIO()
    with tarfile.open(
        fileobj=stream, mode="w", pax_headers={"comment": "a commit", "mtime": "77"}
    ) as archive:
        archive.addfile(*_with_stream(tar.member("label", b"V")))
        archive.addfile(*_with_stream(tar.file("a", b"x", mtime=5)))
    base = store.take(io.BytesIO(stream.getvalue()))
    assert (base.root / "a").stat().st_mtime == 77


def test_archive_comes_from_standard_input(store: Any, tmp_path: Path, rich_tree: Path, gnu_tar: Any) -> None:
    script = (
        "import sys; from pathlib import Path; from webserv_rt.storage.importing import import_base;"
        "print(import_base('-', 'b', bases=Path(sys.argv[1]), staging=Path(sys.argv[2])).record.digest)"
    )
    command = [sys.executable, "-c", script, store.bases, store.staging]
    data = gzip.compress(gnu_tar(rich_tree))
    digest = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    assert digest == store.take(rich_tree, "again").record.digest


def test_archive_comes_from_a_path_with_progress(store: Any, tmp_path: Path, tar: Any) -> None:
    path = tmp_path / "root.tar"
    path.write_bytes(tar.bytes_of(tar.file("big", b"x" * (5 << 20))))
    seen: list[tuple[int, int | None]] = []
    store.take(path, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen[-1] == (size, size)
    assert len(seen) > 3
    assert seen == sorted(seen)


def test_source_that_is_not_there_is_named(store: Any) -> None:
    with pytest.raises(SourceUnavailable, match=r"/nowhere/root\.tar"):
        store.take("/nowhere/root.tar")


def test_data_behind_the_archive_is_refused(store: Any, tar: Any) -> None:
    data = gzip.compress(tar.bytes_of(tar.file("a", b"x")) + b"x" * (70 << 20))
    with pytest.raises(ImportRefused, match="much data follows"):
        store.take(io.BytesIO(data))


def _with_stream(member: tuple[tarfile.TarInfo, bytes]) -> tuple[tarfile.TarInfo, io.BytesIO]:
    return member[0], io.BytesIO(member[1])
