"""Archives that try to leave the root, or to hide something in it: the import is refused as a whole."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from webserv_rt.storage.errors import ImportRefused, PoolFull, SourceDamaged


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory outside of the root that must stay as it is."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "secret").write_text("untouched")
    return victim


@pytest.fixture
def refused(store: Any, victim: Path) -> Any:
    """Import and return the refusal, proving that nothing was kept and nothing outside was touched."""

    def refused(stream: io.BytesIO, match: str, kind: type[Exception] = ImportRefused) -> None:
        with pytest.raises(kind, match=match):
            store.take(stream)
        assert store.is_clean()
        assert [path.name for path in victim.iterdir()] == ["secret"]
        assert (victim / "secret").read_text() == "untouched"

    return refused


def test_absolute_path_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    refused(tar.of(tar.file(f"{victim}/x", b"x")), "absolute path")


def test_dotdot_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("../../victim/x", b"x")), r"'\.\.'")


def test_dotdot_in_the_middle_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.directory("a"), tar.file("a/../../victim/x", b"x")), r"'\.\.'")


def test_dotdot_that_stays_inside_is_refused_too(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.directory("a"), tar.file("a/../x", b"x")), r"'\.\.'")


def test_dotdot_as_a_directory_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.directory("..", mode=0o777)), r"'\.\.'")


def test_file_through_absolute_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    refused(tar.of(tar.symlink("a", str(victim)), tar.file("a/x", b"x")), "symbolic link 'a'")


def test_file_through_relative_symlink_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.symlink("a", "../../../victim"), tar.file("a/x", b"x")), "symbolic link 'a'")


def test_file_through_symlink_that_stays_inside_is_refused_too(tar: Any, refused: Any) -> None:
    members = [tar.directory("usr/lib"), tar.symlink("lib", "usr/lib"), tar.file("lib/x", b"x")]
    refused(tar.of(*members), "symbolic link 'lib'")


def test_file_through_deep_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    members = [tar.directory("a/b"), tar.symlink("a/b/c", str(victim)), tar.file("a/b/c/d/e", b"x")]
    refused(tar.of(*members), "symbolic link 'a/b/c'")


def test_directory_through_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    refused(tar.of(tar.symlink("a", str(victim)), tar.directory("a/x")), "symbolic link 'a'")


def test_symlink_through_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    refused(tar.of(tar.symlink("a", str(victim)), tar.symlink("a/x", "y")), "symbolic link 'a'")


def test_device_through_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    refused(tar.of(tar.symlink("a", str(victim)), tar.device("a/x", 1, 3)), "symbolic link 'a'")


def test_parent_that_turns_into_a_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    members = [tar.file("a/x", b"x"), tar.symlink("a", str(victim)), tar.file("a/x", b"y")]
    refused(tar.of(*members), "in place of a directory with content")


def test_empty_parent_that_turns_into_a_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    members = [tar.directory("a"), tar.symlink("a", str(victim)), tar.file("a/x", b"y")]
    refused(tar.of(*members), "symbolic link 'a'")


def test_hard_link_to_absolute_path_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    refused(tar.of(tar.hard_link("a", f"{victim}/secret")), "absolute path")


def test_hard_link_to_dotdot_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.hard_link("a", "../../victim/secret")), r"'\.\.'")


def test_hard_link_through_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    refused(tar.of(tar.symlink("a", str(victim)), tar.hard_link("b", "a/secret")), "symbolic link 'a'")


def test_hard_link_written_through_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    members = [tar.file("f", b"f"), tar.symlink("a", str(victim)), tar.hard_link("a/f", "f")]
    refused(tar.of(*members), "symbolic link 'a'")


def test_hard_link_to_what_is_not_there_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.hard_link("a", "b"), tar.file("b", b"b")), "does not hold before it")


def test_hard_link_to_itself_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.hard_link("a", "a")), "does not hold before it")


def test_hard_link_to_a_directory_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.directory("a"), tar.hard_link("b", "a")), "hard link to the directory")


def test_hard_link_to_the_root_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.hard_link("b", ".")), "hard link to the directory")


def test_root_as_a_symlink_is_refused(tar: Any, refused: Any, victim: Path) -> None:
    refused(tar.of(tar.symlink(".", str(victim)), tar.file("x", b"x")), "is the root")


def test_root_as_a_file_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("./.", b"x")), "is the root")


def test_empty_name_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("", b"x")), "has no name")


def test_nul_in_a_name_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("x", b"x", pax_headers={"path": "etc/pass\0wd"})), "NUL")


def test_nul_in_a_symlink_target_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.symlink("x", "y", pax_headers={"linkpath": "/etc\0/x"})), "NUL")


def test_nul_in_an_attribute_name_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("x", b"x", pax_headers={"SCHILY.xattr.user.a\0b": "c"})), "NUL")


def test_name_longer_than_the_kernel_takes_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("n" * 256, b"x")), "File name too long")


def test_path_longer_than_a_path_can_be_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("d/" * 100_000 + "x", b"x")), "longer than a path can be")


def test_file_below_a_file_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("a", b"a"), tar.file("a/b", b"b")), "no directory")


def test_whiteout_device_of_overlayfs_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.device("etc/passwd", 0, 0)), "layer directory")


@pytest.mark.parametrize(
    "attribute", ["trusted.overlay.opaque", "trusted.overlay.redirect", "user.overlay.opaque"]
)
def test_overlayfs_attribute_is_refused(tar: Any, refused: Any, attribute: str) -> None:
    headers = {f"SCHILY.xattr.{attribute}": "y"}
    refused(tar.of(tar.directory("etc", pax_headers=headers)), "overlayfs's own attribute")


def test_negative_device_number_is_refused(tar: Any, refused: Any) -> None:
    data = bytearray(tar.bytes_of(tar.device("d", 1, 3), format=tarfile.GNU_FORMAT))
    data[329:337] = b"\xff" * 7 + b"\xfe"
    refused(_with_checksum(data), "is no device number", SourceDamaged)


def test_negative_size_is_refused(tar: Any, refused: Any) -> None:
    data = bytearray(tar.bytes_of(tar.file("f", b"x"), format=tarfile.GNU_FORMAT))
    data[124:136] = b"\xff" * 11 + b"\x00"
    refused(_with_checksum(data), "a size of -256", SourceDamaged)


def test_owner_that_is_no_id_is_refused(tar: Any, refused: Any) -> None:
    data = tar.of(tar.file("f", b"x", pax_headers={"uid": "4294967295"}))
    refused(data, "no user or group id", SourceDamaged)


def test_owner_that_is_no_number_is_refused_not_taken_for_root(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.file("f", b"x", pax_headers={"uid": "www"})), "no number", SourceDamaged)


def test_unknown_type_is_refused(tar: Any, refused: Any) -> None:
    refused(tar.of(tar.member("f", b"M")), "not supported", SourceDamaged)


def test_huge_extended_header_is_refused_unread(tar: Any, refused: Any) -> None:
    info = tarfile.TarInfo("long")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4 << 30
    data = info.tobuf(tarfile.GNU_FORMAT) + b"x" * 1024
    refused(io.BytesIO(data), "extended header of 4294967296 bytes", SourceDamaged)


def test_file_larger_than_the_pool_is_refused_before_it_is_written(tar: Any, refused: Any) -> None:
    info = tarfile.TarInfo("bomb")
    info.size = 1 << 50
    refused(io.BytesIO(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024), "the pool is full", PoolFull)


def test_sparse_file_larger_than_the_pool_is_refused(tar: Any, refused: Any) -> None:
    headers = {"GNU.sparse.size": str(1 << 60), "GNU.sparse.map": "0,1"}
    refused(tar.of(tar.file("hole", b"x", pax_headers=headers)), "the pool is full", PoolFull)


@pytest.mark.parametrize("map_", ["0,2", "5,1,0,0", "9,1", "0,0", "0", "0,-1", ""])
def test_sparse_map_that_does_not_fit_is_refused(tar: Any, refused: Any, map_: str) -> None:
    headers = {"GNU.sparse.size": "9", "GNU.sparse.map": map_}
    refused(tar.of(tar.file("hole", b"x", pax_headers=headers)), "damaged", SourceDamaged)


def test_endless_sparse_map_is_refused(tar: Any, refused: Any) -> None:
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}
    member = tar.file("hole", b"99999999999\n" + b"0\n" * 250, pax_headers=headers)
    refused(tar.of(member), "too long", SourceDamaged)


def test_acl_of_names_is_refused(tar: Any, refused: Any) -> None:
    headers = {"SCHILY.acl.access": "user::rw-,user:root:rwx,group::r--,mask::rwx,other::r--"}
    refused(tar.of(tar.file("f", b"x", pax_headers=headers)), "is for a name", SourceDamaged)


def _with_checksum(data: bytearray) -> io.BytesIO:
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(struct.unpack("512B", data[:512]))
    return io.BytesIO(bytes(data))
