"""Users are looked up inside a root filesystem, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from webserv_rt.errors import WebservError
from webserv_rt.storage.passwd import User, resolve_user

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
# a comment
broken line
mysql:x:101:104:MySQL,,,:/nonexistent:/bin/false
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
1000:x:77:77:a name in digits:/home/digits:/bin/sh
huge:x:99999999999:1::/:/bin/sh
+nis::::::
"""
GROUP = """\
root:x:0:
www-data:x:33:mysql
mysql:x:104:
ssl-cert:x:107:postgres,mysql
adm:x:4:www-data,mysql
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(GROUP)
    return root


def n_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_name_gives_primary_group_first_then_supplementary_groups(root: Path) -> None:
    assert resolve_user(root, "mysql") == User(101, 104, (104, 33, 107, 4), "/nonexistent")


def test_number_with_an_entry_is_that_user(root: Path) -> None:
    assert resolve_user(root, "33") == User(33, 33, (33, 4), "/var/www")


def test_number_without_an_entry_has_group_0_and_no_home(root: Path) -> None:
    assert resolve_user(root, "4711") == User(4711, 0, (0,), "/")


@pytest.mark.parametrize("text", ["mysql:ssl-cert", "mysql:107", "101:ssl-cert", "101:107"])
def test_named_group_replaces_all_groups(root: Path, text: str) -> None:
    assert resolve_user(root, text) == User(101, 107, (107,), "/nonexistent")


def test_group_number_needs_no_entry(root: Path) -> None:
    assert resolve_user(root, "5:6") == User(5, 6, (6,), "/")


def test_name_in_digits_is_found_as_a_name(root: Path) -> None:
    assert resolve_user(root, "1000") == User(77, 77, (77,), "/home/digits")


@pytest.mark.parametrize("name", ["nobody", "broken line", "huge", "+nis"])
def test_unknown_user_is_refused_by_name(root: Path, name: str) -> None:
    with pytest.raises(WebservError, match=f'user "{name}": not in etc/passwd'.replace("+", r"\+")):
        resolve_user(root, name)


def test_unknown_group_is_refused_by_name(root: Path) -> None:
    with pytest.raises(WebservError, match='group "wheel": not in etc/group'):
        resolve_user(root, "mysql:wheel")


@pytest.mark.parametrize("text", ["4294967295", "99999999999999999999", "0:4294967295"])
def test_number_that_the_kernel_takes_for_no_change_is_refused(root: Path, text: str) -> None:
    with pytest.raises(WebservError, match="at most 4294967294"):
        resolve_user(root, text)


def test_empty_user_is_refused(root: Path) -> None:
    with pytest.raises(WebservError, match="NAME, UID"):
        resolve_user(root, ":staff")


def test_root_without_passwd_knows_numbers_only(tmp_path: Path) -> None:
    assert resolve_user(tmp_path, "0") == User(0, 0, (0,), "/")
    with pytest.raises(WebservError, match='user "root"'):
        resolve_user(tmp_path, "root")


def test_descriptor_of_the_root_works_and_stays_open(root: Path) -> None:
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        before = n_descriptors()
        assert resolve_user(root_fd, "mysql").uid == 101
        assert n_descriptors() == before
    finally:
        os.close(root_fd)


def test_absolute_symlink_is_followed_inside_the_root(root: Path) -> None:
    (root / "usr/lib").mkdir(parents=True)
    (root / "etc/passwd").rename(root / "usr/lib/passwd")
    (root / "etc/passwd").symlink_to("/usr/lib/passwd")
    assert resolve_user(root, "mysql").uid == 101


def test_symlinked_directory_is_followed_inside_the_root(root: Path) -> None:
    (root / "static").mkdir()
    (root / "etc").rename(root / "static/etc")
    (root / "etc").symlink_to("./static/../static/etc")
    assert resolve_user(root, "mysql").uid == 101


@pytest.mark.parametrize(
    "climb", ["../outside", "/../../outside", "../../../../../../../../{outside}", "{outside}"]
)
def test_symlink_out_of_the_root_is_not_followed(root: Path, tmp_path: Path, climb: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("evil:x:666:666::/:/bin/sh\n")
    (root / "etc/passwd").unlink()
    (root / "etc/passwd").symlink_to(climb.format(outside=outside))
    with pytest.raises(WebservError, match='user "evil": not in'):
        resolve_user(root, "evil")


def test_symlinked_etc_out_of_the_root_is_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (root / "etc").rename(outside)
    (root / "etc").symlink_to(outside)
    with pytest.raises(WebservError, match='user "mysql"'):
        resolve_user(root, "mysql")


def test_symlink_loop_is_refused_and_leaks_no_descriptor(root: Path) -> None:
    (root / "etc/passwd").unlink()
    (root / "etc/passwd").symlink_to("passwd")
    before = n_descriptors()
    with pytest.raises(WebservError, match="too many symbolic links"):
        resolve_user(root, "mysql")
    assert n_descriptors() == before


def test_fifo_in_place_of_passwd_is_refused_without_hanging(root: Path) -> None:
    (root / "etc/passwd").unlink()
    os.mkfifo(root / "etc/passwd")
    with pytest.raises(WebservError, match="etc/passwd of the root filesystem is not a regular file"):
        resolve_user(root, "mysql")


def test_file_of_absurd_size_is_refused(root: Path) -> None:
    os.truncate(root / "etc/group", 1 << 40)
    with pytest.raises(
        WebservError, match="etc/group of the root filesystem is not a regular file of sane size"
    ):
        resolve_user(root, "mysql")
