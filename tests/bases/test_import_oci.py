"""Images: layers over layers, as the OCI specification and docker's archives have them."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import zstandard

from webserv_rt.storage.errors import ImportRefused, SourceDamaged, SourceUnavailable
from webserv_rt.storage.image_config import ImageConfig

CONFIG = {
    "Entrypoint": ["/docker-entrypoint.sh"],
    "Cmd": ["nginx", "-g", "daemon off;"],
    "Env": ["PATH=/usr/bin:/bin", "EMPTY=", "EQUALS=a=b"],
    "WorkingDir": "/srv",
    "User": "www-data:33",
    "ExposedPorts": {"443/tcp": {}, "80/tcp": {}, "53/udp": {}, "8000-8002/tcp": {}},
    "StopSignal": "SIGQUIT",
}
EXPECTED = ImageConfig(
    entrypoint=("/docker-entrypoint.sh",),
    command=("nginx", "-g", "daemon off;"),
    environment={"PATH": "/usr/bin:/bin", "EMPTY": "", "EQUALS": "a=b"},
    directory="/srv",
    user="www-data:33",
    ports=(80, 443, 8000, 8001, 8002),
    stop_signal="SIGQUIT",
)


@pytest.fixture
def layered(store: Any, images: Any, tar: Any, tmp_path: Path) -> Any:
    """Import an image of layers given as lists of members; return {path: entry}."""

    def layered(*layers: list[Any]) -> dict[str, Any]:
        layout = images.layout(tmp_path / "layout", *(tar.bytes_of(*layer) for layer in layers))
        base = store.take(layout)
        base.verify()
        return {entry.path: entry for entry in base.entries()}

    return layered


def test_layout_is_imported_with_its_configuration(store: Any, images: Any, tar: Any, tmp_path: Path) -> None:
    base = store.take(images.layout(tmp_path / "layout", tar.bytes_of(tar.file("a", b"x")), **CONFIG))
    assert base.record.image == EXPECTED
    assert (base.root / "a").read_bytes() == b"x"


def test_docker_archive_is_imported_with_its_configuration(store: Any, images: Any, tar: Any) -> None:
    archive = images.docker_archive(
        tar.bytes_of(tar.file("a", b"1")), tar.bytes_of(tar.file("b", b"2")), **CONFIG
    )
    base = store.take(io.BytesIO(archive))
    assert base.record.image == EXPECTED
    assert sorted(path.name for path in base.root.iterdir()) == ["a", "b"]


def test_image_that_says_nothing_has_an_empty_configuration(
    store: Any, images: Any, tar: Any, tmp_path: Path
) -> None:
    base = store.take(images.layout(tmp_path / "layout", tar.bytes_of(tar.file("a"))))
    assert base.record.image == ImageConfig(None, None, {}, "", "", (), "")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Env", ["NOVALUE"]),
        ("Env", "A=b"),
        ("Cmd", [1]),
        ("User", 5),
        ("ExposedPorts", {"http/tcp": {}}),
        ("ExposedPorts", {"99999": {}}),
    ],
)
def test_configuration_that_makes_no_sense_is_named(
    store: Any, images: Any, tar: Any, tmp_path: Path, field: str, value: Any
) -> None:
    layout = images.layout(tmp_path / "layout", tar.bytes_of(tar.file("a")), **{field: value})
    with pytest.raises(SourceDamaged, match=field):
        store.take(layout)
    assert store.is_clean()


def test_archive_of_a_layout_equals_the_layout(
    store: Any, images: Any, tar: Any, tmp_path: Path, gnu_tar: Any
) -> None:
    layout = images.layout(tmp_path / "layout", tar.bytes_of(tar.file("a", b"x")), **CONFIG)
    digest = store.take(layout, "layout").record.digest
    data = gnu_tar(layout)
    (tmp_path / "image.tar").write_bytes(data)
    for name, source in [("path", tmp_path / "image.tar"), ("gz", io.BytesIO(gzip.compress(data)))]:
        base = store.take(source, name)
        assert (base.record.digest, base.record.image) == (digest, EXPECTED)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
def test_layers_may_be_compressed_or_not(
    store: Any, images: Any, tar: Any, tmp_path: Path, compress: Any
) -> None:
    (tmp_path / "layout").mkdir()
    layer = tar.bytes_of(tar.file("a", b"x"))
    images.index(tmp_path / "layout", images.manifest(tmp_path / "layout", [layer], compress))
    assert (store.take(tmp_path / "layout").root / "a").read_bytes() == b"x"


def test_later_layer_wins(layered: Any, tar: Any) -> None:
    found = layered([tar.file("a", b"1"), tar.file("b", b"22")], [tar.file("a", b"333", mode=0o600)])
    assert (found["a"].size, found["a"].mode, found["b"].size) == (3, 0o600, 2)


def test_whiteout_removes_a_file(layered: Any, tar: Any) -> None:
    assert list(layered([tar.file("d/a"), tar.file("d/b")], [tar.file("d/.wh.a")])) == [".", "d", "d/b"]


def test_whiteout_removes_a_whole_directory(layered: Any, tar: Any) -> None:
    found = layered([tar.file("d/e/f/g"), tar.symlink("d/l", "/etc"), tar.file("x")], [tar.file(".wh.d")])
    assert list(found) == [".", "x"]


def test_whiteout_of_what_is_not_there_is_nothing(layered: Any, tar: Any) -> None:
    assert list(layered([tar.file("x")], [tar.file(".wh.y"), tar.file("no/such/.wh.z")])) == [".", "x"]


def test_whiteout_spares_what_its_own_layer_brings(layered: Any, tar: Any) -> None:
    before = [tar.file("a", b"new"), tar.file(".wh.a")]
    assert layered([tar.file("a", b"old one")], before)["a"].size == 3


def test_whiteout_and_new_directory_of_one_layer_replace_the_old_directory(layered: Any, tar: Any) -> None:
    lower = [tar.file("d/old/x"), tar.file("d/kept_name", b"lower")]
    upper = [tar.directory("d"), tar.file("d/kept_name", b"up"), tar.file(".wh.d"), tar.file("d/new")]
    found = layered(lower, upper)
    assert list(found) == [".", "d", "d/kept_name", "d/new"]
    assert found["d/kept_name"].size == 2


@pytest.mark.parametrize("opaque_first", [True, False])
def test_opaque_directory_hides_only_lower_layers(layered: Any, tar: Any, opaque_first: bool) -> None:
    lower = [tar.file("d/old"), tar.file("d/sub/old"), tar.file("d/both", b"lower"), tar.file("e")]
    upper = [tar.file("d/new"), tar.file("d/sub/new"), tar.file("d/both", b"up")]
    marker = tar.file("d/.wh..wh..opq")
    found = layered(lower, [marker, *upper] if opaque_first else [*upper, marker])
    assert list(found) == [".", "e", "d", "d/both", "d/new", "d/sub", "d/sub/new"]
    assert found["d/both"].size == 2


def test_third_layer_may_bring_back_what_the_second_hid(layered: Any, tar: Any) -> None:
    found = layered([tar.file("d/a", mode=0o600)], [tar.file(".wh.d")], [tar.file("d/b")])
    assert list(found) == [".", "d", "d/b"]
    assert found["d"].mode == 0o755


def test_metadata_of_a_directory_comes_from_the_last_layer_that_has_it(layered: Any, tar: Any) -> None:
    found = layered(
        [tar.directory("d", mode=0o700, uid=1, mtime=10), tar.file("d/a")],
        [tar.directory("d", mode=0o750, uid=2, mtime=20)],
        [tar.file("d/b", mtime=99)],
    )
    assert (found["d"].mode, found["d"].uid, found["d"].mtime_s) == (0o750, 2, 20)


@pytest.mark.parametrize("kind", ["file", "symlink", "directory"])
@pytest.mark.parametrize("before", ["file", "symlink", "directory"])
def test_later_layer_may_change_the_kind(layered: Any, tar: Any, before: str, kind: str) -> None:
    members = {
        "file": [tar.file("x", b"f")],
        "symlink": [tar.symlink("x", "/etc")],
        "directory": [tar.directory("x"), tar.file("x/in", b"i")],
    }
    found = layered(members[before], members[kind])
    assert found["x"].kind == kind
    assert ("x/in" in found) == (kind == "directory")


def test_hard_link_may_lead_to_a_lower_layer(layered: Any, tar: Any) -> None:
    found = layered([tar.file("a", b"x")], [tar.hard_link("b", "a")])
    assert (found["a"].sha256, found["a"].hard_link) == (found["b"].sha256, "")
    assert found["b"].hard_link == "a"


def test_replacing_one_hard_link_leaves_the_other(layered: Any, tar: Any) -> None:
    found = layered([tar.file("a", b"x"), tar.hard_link("b", "a")], [tar.file("a", b"new")])
    assert (found["a"].size, found["b"].size, found["b"].hard_link) == (3, 1, "")


def test_marks_of_aufs_are_ignored(layered: Any, tar: Any) -> None:
    found = layered(
        [tar.file("a")],
        [tar.directory(".wh..wh.plnk"), tar.file(".wh..wh.plnk/7.9"), tar.file(".wh..wh.aufs")],
    )
    assert list(found) == [".", "a"]


@pytest.mark.parametrize("name", [".wh...", ".wh..", ".wh.", "d/.wh..."])
def test_whiteout_of_no_name_is_refused(layered: Any, tar: Any, store: Any, name: str) -> None:
    with pytest.raises(ImportRefused, match="names no entry"):
        layered([tar.file("d/a")], [tar.file(name)])
    assert store.is_clean()


def test_whiteout_through_a_symlink_is_refused(layered: Any, tar: Any, store: Any, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/x").write_text("untouched")
    with pytest.raises(ImportRefused, match="symbolic link 'd'"):
        layered([tar.symlink("d", str(tmp_path / "victim"))], [tar.file("d/.wh.x")])
    assert (tmp_path / "victim/x").read_text() == "untouched"
    assert store.is_clean()


def test_opaque_mark_through_a_symlink_is_refused(layered: Any, tar: Any, store: Any, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/x").write_text("untouched")
    with pytest.raises(ImportRefused, match="symbolic link 'd'"):
        layered([tar.symlink("d", str(tmp_path / "victim"))], [tar.file("d/.wh..wh..opq")])
    assert (tmp_path / "victim/x").read_text() == "untouched"


def test_file_through_a_symlink_of_a_lower_layer_is_refused(
    layered: Any, tar: Any, store: Any, tmp_path: Path
) -> None:
    (tmp_path / "victim").mkdir()
    with pytest.raises(ImportRefused, match="symbolic link 'd'"):
        layered([tar.symlink("d", str(tmp_path / "victim"))], [tar.file("d/x", b"x")])
    assert list((tmp_path / "victim").iterdir()) == []


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("part", ["layer", "config", "manifest"])
def test_blob_that_does_not_match_its_digest_is_refused(
    store: Any, images: Any, tar: Any, tmp_path: Path, part: str
) -> None:
    layout = images.layout(tmp_path / "layout", tar.bytes_of(tar.file("a", os.urandom(9999))))
    manifest_digest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    manifest = json.loads((layout / "blobs" / manifest_digest.replace(":", "/")).read_text())
    digests = {
        "manifest": manifest_digest,
        "config": manifest["config"]["digest"],
        "layer": manifest["layers"][0]["digest"],
    }
    _damage(layout / "blobs" / digests[part].replace(":", "/"))
    with pytest.raises(SourceDamaged):
        store.take(layout)
    assert store.is_clean()


def test_layer_that_decompresses_to_something_else_is_refused(
    store: Any, images: Any, tar: Any, tmp_path: Path
) -> None:
    good, other = (tar.bytes_of(tar.file("a", content)) for content in (b"x", b"y"))
    (tmp_path / "layout").mkdir()
    manifest = images.manifest(tmp_path / "layout", [good], lambda layer: gzip.compress(other))
    images.index(tmp_path / "layout", manifest)
    with pytest.raises(SourceDamaged, match="decompressed, does not match its digest"):
        store.take(tmp_path / "layout")
    assert store.is_clean()


def test_bytes_behind_a_layer_are_covered_by_its_digest(
    store: Any, images: Any, tar: Any, tmp_path: Path
) -> None:
    layout = images.layout(tmp_path / "layout", tar.bytes_of(tar.file("a", b"x")))
    for blob in (layout / "blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            blob.write_bytes(blob.read_bytes() + b"\0" * 1000)
    with pytest.raises(SourceDamaged, match="does not match its digest"):
        store.take(layout)


def test_damaged_layer_of_a_docker_archive_is_refused(store: Any, images: Any, tar: Any) -> None:
    archive = images.docker_archive(tar.bytes_of(tar.file("a", b"content of a file")))
    archive = archive.replace(b"content of a file", b"CONTENT of a file")
    with pytest.raises(SourceDamaged, match="does not match its digest"):
        store.take(io.BytesIO(archive))
    assert store.is_clean()


def test_missing_layer_is_named(store: Any, images: Any, tar: Any, tmp_path: Path) -> None:
    layout = images.layout(tmp_path / "layout", tar.bytes_of(tar.file("a", b"x")))
    for blob in (layout / "blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            blob.unlink()
    with pytest.raises(SourceDamaged, match="blobs/sha256/"):
        store.take(layout)


def test_digest_cannot_lead_out_of_the_layout(store: Any, images: Any, tmp_path: Path) -> None:
    (tmp_path / "layout").mkdir()
    images.index(tmp_path / "layout", {"mediaType": "x", "digest": "sha256:../../../etc/passwd", "size": 1})
    with pytest.raises(SourceDamaged, match="digest belongs"):
        store.take(tmp_path / "layout")


def test_blob_that_is_a_symlink_is_not_followed(store: Any, images: Any, tar: Any, tmp_path: Path) -> None:
    layout = images.layout(tmp_path / "layout", tar.bytes_of(tar.file("a", b"x")))
    (layout / "blobs/sha256").rename(tmp_path / "elsewhere")
    (layout / "blobs/sha256").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceDamaged, match="cannot be read"):
        store.take(layout)


def _other(images: Any) -> str:
    return "arm64" if os.uname().machine == "x86_64" else "amd64"


def test_platform_is_chosen_from_a_nested_index(store: Any, images: Any, tar: Any, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    here = json.loads(images.config([]))["architecture"]
    mine = images.manifest(layout, [tar.bytes_of(tar.file("mine"))])
    theirs = images.manifest(layout, [tar.bytes_of(tar.file("theirs"))])
    attestation = images.manifest(layout, [tar.bytes_of(tar.file("attestation"))])
    manifests = [
        {**theirs, "platform": {"os": "linux", "architecture": _other(images)}},
        {**attestation, "platform": {"os": "unknown", "architecture": "unknown"}},
        {**mine, "platform": {"os": "linux", "architecture": here}},
    ]
    nested = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    media_type = "application/vnd.oci.image.index.v1+json"
    images.index(layout, images.put(layout, nested, media_type))
    assert [path.name for path in store.take(layout).root.iterdir()] == ["mine"]


def test_image_for_another_platform_only_is_refused(
    store: Any, images: Any, tar: Any, tmp_path: Path
) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    manifest = images.manifest(layout, [tar.bytes_of(tar.file("a"))])
    platform = {"os": "linux", "architecture": _other(images)}
    images.index(layout, {**manifest, "platform": platform})
    with pytest.raises(ImportRefused, match=f"image is for linux/{_other(images)}, this machine is"):
        store.take(layout)


def test_configuration_for_another_platform_is_refused(store: Any, images: Any, tar: Any) -> None:
    here = json.loads(images.config([]))["architecture"]
    made = images.config
    images.config = lambda layers: made(layers).replace(here.encode(), _other(images).encode())
    archive = images.docker_archive(tar.bytes_of(tar.file("a")))
    with pytest.raises(ImportRefused, match=f"this machine is linux/{here}"):
        store.take(io.BytesIO(archive))


def test_one_of_several_images_is_taken_by_name(store: Any, images: Any, tar: Any, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    key = "org.opencontainers.image.ref.name"
    one, two = (
        {**images.manifest(layout, [tar.bytes_of(tar.file(name))]), "annotations": {key: name}}
        for name in ("one", "two:latest")
    )
    images.index(layout, one, two)
    with pytest.raises(ImportRefused, match=r"name one of them.*: one, two:latest"):
        store.take(layout)
    assert [path.name for path in store.take(f"oci:{layout}:two:latest").root.iterdir()] == ["two:latest"]
    with pytest.raises(SourceUnavailable, match="no image three"):
        store.take(f"oci:{layout}:three", "c")


def test_what_is_no_image_is_refused_where_an_image_was_asked_for(
    store: Any, tar: Any, tmp_path: Path
) -> None:
    (tmp_path / "root.tar").write_bytes(tar.bytes_of(tar.file("a")))
    with pytest.raises(ImportRefused, match="no archive of an image"):
        store.take(f"oci:{tmp_path / 'root.tar'}")
    (tmp_path / "dir").mkdir()
    with pytest.raises(SourceDamaged, match="this is no image"):
        store.take(f"oci:{tmp_path / 'dir'}")


def test_indexes_nested_without_end_are_refused(store: Any, images: Any, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    media_type = "application/vnd.oci.image.index.v1+json"
    descriptor = images.put(layout, b'{"manifests": []}', media_type)
    for _ in range(9):
        descriptor = images.put(layout, json.dumps({"manifests": [descriptor]}).encode(), media_type)
    images.index(layout, descriptor)
    with pytest.raises(ImportRefused, match="nested"):
        store.take(layout)


@pytest.mark.parametrize("text", ["", "[", "[]", '{"manifests": 5}', '{"manifests": [5]}', "[" * 100_000])
def test_index_that_makes_no_sense_is_refused(store: Any, images: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "layout").mkdir()
    images.index(tmp_path / "layout")
    (tmp_path / "layout/index.json").write_text(text)
    with pytest.raises(SourceDamaged):
        store.take(tmp_path / "layout")
    assert store.is_clean()
