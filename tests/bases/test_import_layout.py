"""How a base lies on an XFS pool: every file in one piece of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def on_xfs(tmp_path: Path, new_store: Any) -> Iterator[Any]:
    """A store on a reflink XFS of its own."""
    if shutil.which("mkfs.xfs") is None:
        pytest.skip("mkfs.xfs is not installed")
    image, directory = tmp_path / "image", tmp_path / "xfs"
    directory.mkdir()
    with image.open("wb") as file:
        file.truncate(512 << 20)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    subprocess.run(["mount", "-o", "loop,noatime", image, directory], check=True)
    try:
        yield new_store(directory)
    finally:
        subprocess.run(["umount", directory], check=True)


def _extents(path: Path) -> list[str]:
    """Return the flags of each extent of PATH."""
    text = subprocess.run(["filefrag", "-v", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [line.split(":") for line in text.splitlines() if line.strip()[:1].isdigit()]
    return [row[-1].strip() for row in rows]


def test_every_file_is_one_unshared_extent_even_from_the_same_filesystem(on_xfs: Any, tmp_path: Path) -> None:
    source = on_xfs.bases.parent / "source"
    source.mkdir()
    for number in range(200):
        (source / f"{number:03}").write_bytes(os.urandom(100 + number * 500))
    (source / "big").touch()
    with (source / "big").open("r+b") as big, (source / "log").open("wb") as log:
        for number in range(200):  # written in turns and synced, as a live database does
            big.seek((number * 37 % 200) * 200_000)
            big.write(os.urandom(200_000))
            log.write(os.urandom(50_000))
            if number % 20 == 0:
                os.fsync(big.fileno())
                os.fsync(log.fileno())
    assert len(_extents(source / "big")) > 4
    base = on_xfs.take(source)
    for path in base.root.iterdir():
        (flags,) = _extents(path)
        assert "shared" not in flags
    base.verify()


def test_digest_does_not_depend_on_the_filesystem(
    on_xfs: Any, store: Any, rich_tree: Path, rsync_differences: Any
) -> None:
    base = on_xfs.take(rich_tree)
    assert rsync_differences(rich_tree, base.root) == ""
    base.verify()
    assert base.record.digest == store.take(rich_tree).record.digest
    assert base.record.digest == on_xfs.take(base.root, "again").record.digest
