"""Sealed bases: opened, listed, verified, held, removed."""

from __future__ import annotations

import fcntl
import io
import json
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zstandard

from webserv_rt.kernel.descriptor import open_directory
from webserv_rt.kernel.remove import remove_tree
from webserv_rt.storage.base import hold_root, list_bases, open_base, remove_base
from webserv_rt.storage.errors import BadBaseName, BaseDamaged, BaseInUse, BaseNotFound


@pytest.fixture
def base(store: Any, rich_tree: Path) -> Any:
    return store.take(rich_tree, site=b'name = "x"\n')


def test_record_says_what_the_base_is(store: Any, base: Any, rich_tree: Path) -> None:
    record = json.loads((base.path / "base.json").read_text())
    assert record["format"] == 1
    assert record["name"] == "b"
    assert record["source"] == str(rich_tree)
    assert record["image"] is None
    assert record["digest"].startswith("sha256:")
    assert record["n_entries"] == sum(1 for _ in base.entries())
    assert record["size_bytes"] == sum(entry.size for entry in base.entries() if not entry.hard_link)
    assert open_base(store.bases, "b").record == base.record


def test_source_can_be_recorded_by_another_name(store: Any, tar: Any) -> None:
    assert store.take(tar.of(tar.file("a"))).record.source == "stream"
    assert store.take(tar.of(tar.file("a")), "c", recorded_source="recipe:1").record.source == "recipe:1"


def test_site_spec_is_kept_as_it_is(store: Any, base: Any, tar: Any) -> None:
    assert base.site_path.read_bytes() == b'name = "x"\n'
    assert store.take(tar.of(tar.file("a")), "c").site_path is None


def test_others_cannot_reach_into_a_base(base: Any) -> None:
    assert stat.S_IMODE(base.path.stat().st_mode) == 0o700


def test_sealed_base_verifies_with_progress(base: Any) -> None:
    seen: list[tuple[int, int | None]] = []
    base.verify(lambda done, total: seen.append((done, total)))
    assert seen[-1][1] == base.record.size_bytes


def test_verifying_does_not_write(base: Any) -> None:
    def times() -> list[tuple[Path, int, int, int]]:
        found = [(path, path.lstat()) for path in base.path.rglob("*")]
        return [
            (
                path,
                status.st_mtime_ns,
                status.st_ctime_ns,
                stat.S_ISREG(status.st_mode) and status.st_atime_ns,
            )
            for path, status in found
            if path.parent != base.path
        ]

    before = times()
    base.verify()
    assert times() == before


def test_verifying_names_every_difference(base: Any) -> None:
    (base.root / "etc/passwd").write_text("root::0:0::/root:/bin/sh\n")
    (base.root / "added").touch()
    (base.root / "var/empty").unlink()
    with pytest.raises(BaseDamaged, match="5 paths not as sealed") as caught:
        base.verify()
    named = {(difference.kind, difference.path) for difference in caught.value.differences}
    expected = {("changed", "etc/passwd"), ("added", "added"), ("removed", "var/empty"), ("changed", "var")}
    assert named - {("changed", ".")} == expected - {("changed", ".")} or named == expected | {
        ("changed", ".")
    }


def test_error_lists_the_first_20_differences(store: Any, tar: Any) -> None:
    base = store.take(tar.of(*(tar.file(f"f{number:02}") for number in range(30))))
    for number in range(30):
        (base.root / f"f{number:02}").chmod(0o777)
    with pytest.raises(BaseDamaged) as caught:
        base.verify()
    lines = str(caught.value).splitlines()
    assert len(lines) == 22
    assert lines[1] == "  changed f00 (mode)"
    assert lines[-1] == "  ... and 10 more"
    assert len(caught.value.differences) == 30


def test_one_flipped_bit_is_found(base: Any) -> None:
    path = base.root / "usr/bin/su"
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(12345)
        file.write(b"\0")
    path.chmod(stat.S_IMODE(times.st_mode))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(BaseDamaged, match=r"changed usr/bin/su \(sha256\)"):
        base.verify()


def test_changed_manifest_is_found(base: Any) -> None:
    path = base.path / "manifest.jsonl.zst"
    text = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    changed = text.replace(b'"mode":"6755"', b'"mode":"0755"')
    path.write_bytes(zstandard.compress(changed))
    with pytest.raises(BaseDamaged, match=r"does not match the digest in base\.json"):
        base.verify()


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x28\xb5\x2f\xfd" + b"\xff" * 50])
def test_manifest_that_cannot_be_read_is_named(base: Any, content: bytes) -> None:
    (base.path / "manifest.jsonl.zst").write_bytes(content)
    with pytest.raises(BaseDamaged, match=r"manifest\.jsonl\.zst"):
        base.verify()


def test_changed_record_is_found(store: Any, base: Any) -> None:
    path = base.path / "base.json"
    path.write_text(path.read_text().replace('"source": "', '"source": "elsewhere'))
    with pytest.raises(BaseDamaged, match="does not match its own digest"):
        open_base(store.bases, "b")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}', "null", '{"format": 1, "seal": 5}'])
def test_record_that_cannot_be_read_is_named(store: Any, base: Any, content: str) -> None:
    (base.path / "base.json").write_text(content)
    with pytest.raises(BaseDamaged, match=r"base\.json"):
        open_base(store.bases, "b")


def test_record_of_another_base_is_found(store: Any, base: Any) -> None:
    base.path.rename(store.bases / "c")
    with pytest.raises(BaseDamaged, match="that of the base b"):
        open_base(store.bases, "c")


def test_changed_or_missing_site_spec_is_found(base: Any) -> None:
    base.site_path.write_bytes(b'name = "y"\n')
    with pytest.raises(BaseDamaged, match=r"site\.toml does not match"):
        base.verify()
    base.site_path.unlink()
    with pytest.raises(BaseDamaged, match=r"missing.*site\.toml"):
        base.verify()


def test_file_beside_the_root_is_found(base: Any) -> None:
    (base.path / "extra").touch()
    with pytest.raises(BaseDamaged, match="extra"):
        base.verify()


def test_bases_are_listed_by_name(store: Any, tar: Any) -> None:
    for name in ("b", "a", "c"):
        store.take(tar.of(tar.file(name)), name)
    assert [base.name for base in list_bases(store.bases)] == ["a", "b", "c"]


def test_base_that_is_not_there_is_named_with_those_that_are(store: Any, base: Any) -> None:
    with pytest.raises(BaseNotFound, match="no base shop; there are: b"):
        open_base(store.bases, "shop")
    with pytest.raises(BaseNotFound, match="no base shop; there are: b"):
        remove_base(store.bases, "shop", staging=store.staging)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../b", "/b", "a/b", "A", "-b", ".b", "b\n", "b c", "b" * 64, "\xe9"]
)
def test_bad_name_is_refused_everywhere(store: Any, base: Any, tar: Any, name: str) -> None:
    with pytest.raises(BadBaseName):
        store.take(tar.of(tar.file("a")), name)
    with pytest.raises(BadBaseName):
        open_base(store.bases, name)
    with pytest.raises(BadBaseName):
        remove_base(store.bases, name, staging=store.staging)


def test_removed_base_is_gone_and_its_blocks_are_free(store: Any, base: Any) -> None:
    remove_base(store.bases, "b", staging=store.staging)
    assert store.is_clean()


def test_damaged_base_can_be_removed(store: Any, base: Any) -> None:
    (base.path / "base.json").write_text("garbage")
    subprocess.run(["rm", "-r", base.root], check=True)
    remove_base(store.bases, "b", staging=store.staging)
    assert store.is_clean()


def test_held_base_is_not_removed_until_it_is_let_go(store: Any, base: Any) -> None:
    roots = [hold_root(base) for _ in range(2)]
    for root in roots:
        with pytest.raises(BaseInUse, match="base b is in use"):
            remove_base(store.bases, "b", staging=store.staging)
        base.verify()
        root.close()
    remove_base(store.bases, "b", staging=store.staging)
    assert store.is_clean()


def test_base_held_by_another_process_is_not_removed_until_that_ends(store: Any, base: Any) -> None:
    script = (
        "import sys; from pathlib import Path; from webserv_rt.storage.base import hold_root, open_base;"
        "root = hold_root(open_base(Path(sys.argv[1]), 'b')); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, store.bases]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(BaseInUse):
            remove_base(store.bases, "b", staging=store.staging)
        process.kill()
        process.wait()
    remove_base(store.bases, "b", staging=store.staging)


def test_base_removed_while_one_waits_to_hold_it_is_not_held(store: Any, base: Any) -> None:
    """What is being removed file by file is no base to start from."""
    with ThreadPoolExecutor(1) as threads, open_directory(base.root) as root:
        fcntl.flock(root.fileno(), fcntl.LOCK_EX)
        held = threads.submit(hold_root, base)
        time.sleep(0.1)
        assert not held.done()
        base.path.rename(store.staging / "b")
        root.close()
        with pytest.raises(BaseNotFound, match="base b was removed or imported anew just now"):
            held.result()
        with open_directory(store.staging) as staging:
            remove_tree(staging.fileno(), "b")


def test_base_imported_anew_is_not_held_for_the_one_it_replaces(store: Any, base: Any, tar: Any) -> None:
    remove_base(store.bases, "b", staging=store.staging)
    anew = store.take(tar.of(tar.file("a")))
    with pytest.raises(BaseNotFound, match="imported anew"):
        hold_root(base)
    hold_root(anew).close()


def test_file_names_need_utf8(store: Any, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from webserv_rt.storage.importing import import_base;"
        "import_base(sys.argv[1], 'b', bases=Path(sys.argv[2]), staging=Path(sys.argv[3]))"
    )
    environment = {**os.environ, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [sys.executable, "-c", script, tmp_path, store.bases, store.staging]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "set PYTHONUTF8=1" in done.stderr
    assert store.is_clean()


def test_manifest_written_by_the_import_matches_the_tree_on_disk(
    store: Any, rich_tree: Path, gnu_tar: Any
) -> None:
    # The digests come from what was written, not from what was read back: prove that both agree.
    for name, source in (("d", rich_tree), ("t", io.BytesIO(gnu_tar(rich_tree)))):
        store.take(source, name).verify()
