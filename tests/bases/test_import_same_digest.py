"""One tree has one digest, whatever it is imported from."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda name: name not in (".", "..") and len(name.encode()) <= 200 and not name.startswith(".wh."))
IDS = st.integers(0, 2**32 - 2) | st.sampled_from([0, 33, 2097151, 2097152])
TIMES_NS = st.integers(-(2**31) * 10**9, (2**33) * 10**9)
METADATA = st.tuples(st.integers(0, 0o7777), IDS, IDS, TIMES_NS)
ATTRIBUTES = st.dictionaries(
    st.text("abcz.=%", min_size=1, max_size=8).map(lambda name: f"user.{name}"),
    st.binary(min_size=1, max_size=60),
    max_size=2,
)
CONTENTS = st.binary(max_size=2000) | st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=10))
NUMBERS = st.tuples(st.integers(1, 4095), st.integers(0, 2**20 - 1))


def _nodes(kind: str, contents: Any, attributes: Any = st.just({})) -> Any:  # noqa: B008
    return st.tuples(st.just(kind), contents, METADATA, attributes)


def _directories(below: Any) -> Any:
    return _nodes("directory", st.dictionaries(NAMES, below, max_size=5), ATTRIBUTES)


LEAVES = (
    _nodes("file", CONTENTS, ATTRIBUTES)
    | _nodes("symlink", st.text("ab./\xe9", min_size=1, max_size=150))
    | _nodes("fifo", st.none())
    | _nodes("device", NUMBERS)
    | _nodes("link", st.integers(0, 100))
)
TREES = _directories(st.recursive(LEAVES, _directories, max_leaves=12))


def _make(path: Path, node: Any, files: list[Path]) -> None:
    kind, content, (mode, uid, gid, time_ns), attributes = node
    if kind == "link":
        if files:
            os.link(files[content % len(files)], path, follow_symlinks=False)
        return
    if kind == "directory":
        path.mkdir(exist_ok=True)
        for name, below in content.items():
            _make(path / name, below, files)
    elif kind == "file":
        offset, data = content if isinstance(content, tuple) else (0, content)
        with path.open("wb") as file:
            file.seek(offset)
            file.write(data)
    elif kind == "symlink":
        path.symlink_to(content)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.mknod(path, 0o20600, os.makedev(*content))
    if kind in ("file", "symlink"):  # GNU tar keeps no other hard links
        files.append(path)
    os.chown(path, uid, gid, follow_symlinks=False)
    if kind != "symlink":
        path.chmod(mode)
    for name, value in attributes.items():
        os.setxattr(path, name, value)
    os.utime(path, ns=(0, time_ns), follow_symlinks=False)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A place where syncing costs nothing, as there are hundreds of imports."""
    directory = tmp_path / "memory"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "test", directory], check=True)
    try:
        os.setxattr(directory, "user.try", b"1")
    except OSError:  # before Linux 6.6
        yield tmp_path
    else:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_every_way_in_gives_the_same_digest(
    tree: Any, images: Any, gnu_tar: Any, new_store: Any, in_memory: Path
) -> None:
    with tempfile.TemporaryDirectory(dir=in_memory) as name:
        directory = Path(name)
        source = directory / "source"
        _make(source, tree, [])
        store = new_store(directory)
        archive = gnu_tar(source)
        shuffled = gnu_tar(
            source, "--format=posix", "--xattrs", "--xattrs-include=*", "--sort=inode", "--sparse"
        )
        (directory / "image.tar").write_bytes(images.docker_archive(archive))
        layout = images.layout(directory / "layout", archive)
        sources = {
            "directory": source,
            "tar": io.BytesIO(archive),
            "shuffled": io.BytesIO(shuffled),
            "gzip": io.BytesIO(gzip.compress(archive)),
            "docker": directory / "image.tar",
            "oci": layout,
            "oci-twice": images.layout(directory / "twice", archive, archive),
            "oci-archive": io.BytesIO(gnu_tar(layout)),
        }
        digests = {}
        for kind, each in sources.items():
            base = store.take(each, kind)
            base.verify()
            digests[kind] = base.record.digest
        digests["imported again"] = store.take(store.bases / "tar/root", "again").record.digest
        assert len(set(digests.values())) == 1, digests
        subprocess.run(["rm", "-rf", *directory.iterdir()], check=True)


def test_layers_that_split_a_tree_give_its_digest(
    store: Any, images: Any, gnu_tar: Any, rich_tree: Path, tmp_path: Path
) -> None:
    whole = store.take(rich_tree, "whole").record.digest
    upper = gnu_tar(rich_tree)
    (rich_tree / "var/www/page").unlink()
    (rich_tree / "var/www").chmod(0o700)
    (rich_tree / "etc/passwd").write_text("lower")
    lower = gnu_tar(rich_tree)
    assert store.take(images.layout(tmp_path / "layout", lower, upper)).record.digest == whole
