"""The manifest: what a digest covers, what it does not, and what a difference says."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import zstandard

from webserv_rt.storage.difference import Difference, diff
from webserv_rt.storage.entry import Entry
from webserv_rt.storage.errors import TreeUnreadable
from webserv_rt.storage.manifest import manifest_digest, read_manifest, write_manifest
from webserv_rt.storage.scan import scan_tree


def _digest(tree: Path, directory: Path) -> str:
    path = directory / "m"
    digest = write_manifest(path, scan_tree(tree)).digest
    path.unlink()
    return digest


def test_manifest_is_lines_of_json_whose_hash_is_the_digest(rich_tree: Path, tmp_path: Path) -> None:
    summary = write_manifest(tmp_path / "m", scan_tree(rich_tree))
    text = zstandard.ZstdDecompressor().decompressobj().decompress((tmp_path / "m").read_bytes())
    assert summary.digest == f"sha256:{hashlib.sha256(text).hexdigest()}" == manifest_digest(tmp_path / "m")
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0] == {"manifest": 1}
    assert summary.n_entries == len(lines) - 1 == sum(1 for _ in rich_tree.rglob("*")) + 1
    by_path = {line["path"]: line for line in lines[1:]}
    assert by_path["usr/bin/su"] == {
        "path": "usr/bin/su",
        "kind": "file",
        "mode": "6755",
        "uid": 0,
        "gid": 12,
        "mtime": (rich_tree / "usr/bin/su").stat().st_mtime_ns // 10**9,
        "size": 20000,
        "sha256": hashlib.sha256(b"\x7fELF" * 5000).hexdigest(),
    }
    assert by_path["bin"]["target"] == "usr/bin"
    assert by_path["dev/sda"]["device"] == "8:0"
    assert by_path["usr/bin/zping"]["hard_link"] == "usr/bin/ping"
    assert by_path["var/www/page"]["xattrs"]["user.note"] == b"\0\xff=binary\n".hex()


def test_size_counts_hard_links_once(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"x" * 1000)
    os.link(tmp_path / "tree/a", tmp_path / "tree/b")
    assert write_manifest(tmp_path / "m", scan_tree(tmp_path / "tree")).size_bytes == 1000


def test_manifest_reads_back_as_it_was_written(rich_tree: Path, tmp_path: Path) -> None:
    entries = list(scan_tree(rich_tree))
    write_manifest(tmp_path / "m", entries)
    assert list(read_manifest(tmp_path / "m")) == entries


def test_order_is_files_then_subdirectories_by_name(tmp_path: Path) -> None:
    for name in ("b/x", "a.b/x", "a/z", "a/b/x", "Z", "a-"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    paths = [entry.path for entry in scan_tree(tmp_path)]
    assert paths == [".", "Z", "a-", "a", "a/z", "a/b", "a/b/x", "a.b", "a.b/x", "b", "b/x"]


def test_digest_ignores_where_and_how_the_tree_lies(rich_tree: Path, tmp_path: Path) -> None:
    before = _digest(rich_tree, tmp_path)
    moved = rich_tree.rename(tmp_path / "moved")
    sparse = moved / "var/sparse"
    status = sparse.stat()
    sparse.write_bytes(sparse.read_bytes())  # no holes any more
    os.utime(sparse, ns=(5, status.st_mtime_ns + 1_000_000))  # within the second
    assert _digest(moved, tmp_path) == before


CHANGES: dict[str, tuple[Callable[[Path], object], Difference]] = {
    "content": (
        lambda root: (root / "usr/bin/su").write_bytes(b"\x7fELG" * 5000),
        Difference("changed", "usr/bin/su", ("sha256",)),
    ),
    "size": (
        lambda root: os.truncate(root / "var/empty", 1),
        Difference("changed", "var/empty", ("size", "sha256")),
    ),
    "mode": (lambda root: (root / "etc").chmod(0o700), Difference("changed", "etc", ("mode",))),
    "owner": (lambda root: os.chown(root / "etc", 1, -1), Difference("changed", "etc", ("uid",))),
    "group": (
        lambda root: os.chown(root / "bin", -1, 1, follow_symlinks=False),
        Difference("changed", "bin", ("gid",)),
    ),
    "time": (lambda root: os.utime(root / "etc", (1, 1)), Difference("changed", "etc", ("mtime_s",))),
    "attribute": (
        lambda root: os.setxattr(root / "var/dangling", "trusted.note", b"new", follow_symlinks=False),
        Difference("changed", "var/dangling", ("xattrs",)),
    ),
    "target": (
        lambda root: ((root / "bin").unlink(), (root / "bin").symlink_to("/usr/bin")),
        Difference("changed", "bin", ("target",)),
    ),
    "device": (
        lambda root: ((root / "dev/null").unlink(), os.mknod(root / "dev/null", 0o20666, os.makedev(1, 5))),
        Difference("changed", "dev/null", ("device",)),
    ),
    "kind": (
        lambda root: ((root / "dev/initctl").unlink(), (root / "dev/initctl").mkdir(0o600)),
        Difference("changed", "dev/initctl", ("kind",)),
    ),
    "hard link": (
        lambda root: ((root / "var/empty").unlink(), os.link(root / "var/Empty", root / "var/empty")),
        Difference("changed", "var/empty", ("mode", "size", "sha256", "hard_link")),
    ),
    "addition": (lambda root: (root / "etc/new").touch(), Difference("added", "etc/new")),
    "removal": (lambda root: (root / "etc/passwd").unlink(), Difference("removed", "etc/passwd")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_difference_names_what_changed(rich_tree: Path, tmp_path: Path, change: str) -> None:
    before = list(scan_tree(rich_tree))
    digest = _digest(rich_tree, tmp_path)
    times = {entry.path: (entry.mtime_s, entry.kind) for entry in before}
    alter, expected = CHANGES[change]
    alter(rich_tree)
    if change != "time":
        _restore_times(rich_tree, times)
    found = list(diff(before, scan_tree(rich_tree)))
    assert expected in found
    assert [each for each in found if each != expected and each.fields != ("mtime_s",)] == []
    assert _digest(rich_tree, tmp_path) != digest


def _restore_times(root: Path, times: Mapping[str, tuple[int, str]]) -> None:
    for path, (mtime_s, _) in times.items():
        if (root / path).is_symlink() or (root / path).exists():
            os.utime(root / path, (mtime_s, mtime_s), follow_symlinks=False)


def test_difference_reads_well() -> None:
    assert str(Difference("changed", "etc/passwd", ("mode", "sha256"))) == "changed etc/passwd (mode, sha256)"
    assert str(Difference("added", "a\nb\udcff")) == r"added a\nb\udcff"


def test_equal_trees_have_no_difference(rich_tree: Path) -> None:
    assert list(diff(scan_tree(rich_tree), scan_tree(rich_tree))) == []


def test_scan_leaves_out_what_is_excluded(rich_tree: Path) -> None:
    paths = {
        entry.path for entry in scan_tree(rich_tree, exclude=("var/www", "/dev", "etc/passwd", "nowhere"))
    }
    assert not {"var/www", "var/www/page", "dev", "dev/null", "etc/passwd"} & paths
    assert {"var", "etc", "usr/bin/su"} <= paths


def test_scan_lists_sockets(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert [entry.kind for entry in scan_tree(tmp_path)] == ["directory", "socket"]


def test_scan_takes_a_descriptor_and_leaves_it_open(rich_tree: Path) -> None:
    fd = os.open(rich_tree, os.O_RDONLY)
    assert list(scan_tree(fd)) == list(scan_tree(rich_tree))
    os.close(fd)


def test_scan_that_is_given_up_closes_its_files(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number:03}").write_bytes(os.urandom(300_000))
    before = len([*Path("/proc/self/fd").iterdir()])
    scan = scan_tree(tmp_path)
    for _ in range(5):
        next(scan)
    scan.close()  # type: ignore[attr-defined]
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_large_files_are_hashed_right_and_in_order(tmp_path: Path) -> None:
    sizes = [0, 1, 128 << 10, (128 << 10) + 1, 5 << 20, 3]
    for number, size in enumerate(sizes):
        (tmp_path / str(number)).write_bytes(os.urandom(size))
    for number in range(len(sizes)):
        os.link(tmp_path / str(number), tmp_path / f"{number}.link")
    entries = {entry.path: entry for entry in scan_tree(tmp_path) if entry.kind == "file"}
    assert list(entries) == sorted(entries)
    for path, entry in entries.items():
        assert entry.sha256 == hashlib.sha256((tmp_path / path).read_bytes()).hexdigest()


def test_scan_of_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TreeUnreadable, match="nowhere"):
        list(scan_tree(tmp_path / "nowhere"))


def test_scan_does_not_follow_symlinks(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/l").symlink_to(tmp_path / "outside")
    assert [entry.path for entry in scan_tree(tmp_path / "tree")] == [".", "l"]


def test_overlay_shows_the_same_tree_as_its_lower_layer(rich_tree: Path, tmp_path: Path) -> None:
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir(mode=0o755)
    layers = f"lowerdir={rich_tree},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "test", tmp_path / "merged"], check=True)
    try:
        changes = list(diff(scan_tree(rich_tree), scan_tree(tmp_path / "merged")))
        assert [change for change in changes if change.path != "."] == []
        with (tmp_path / "merged/etc/passwd").open("a") as file:
            file.write("more")
        (tmp_path / "merged/var/dangling").unlink()
        (tmp_path / "merged/tmp/new").touch()
        changes = list(diff(scan_tree(rich_tree), scan_tree(tmp_path / "merged")))
        assert {(change.kind, change.path) for change in changes if change.fields != ("mtime_s",)} == {
            ("changed", "etc/passwd"),
            ("removed", "var/dangling"),
            ("added", "tmp/new"),
        }
    finally:
        subprocess.run(["umount", tmp_path / "merged"], check=True)


@pytest.mark.parametrize(
    "text", ["", "[]\n", '{"manifest": 2}\n', '{"manifest": 1}\n{"path": "a"}\n', '{"manifest": 1}\nx\n']
)
def test_manifest_that_cannot_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "m").write_bytes(zstandard.compress(text.encode()))
    with pytest.raises(ValueError):
        list(read_manifest(tmp_path / "m"))


def test_entry_survives_json() -> None:
    entry = Entry("a\udcff", "file", 0o4755, 1, 2, -3, 4, "ab", "", "b", "", (("user.a", "00ff"),))
    assert Entry.from_json(json.loads(json.dumps(entry.to_json()))) == entry
