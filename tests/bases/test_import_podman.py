"""podman's store, through a service that the tests start, and archives that podman writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webserv_rt.storage.errors import SourceUnavailable
from webserv_rt.storage.scan import scan_tree

Podman = Callable[..., str]


@pytest.fixture
def podman() -> Iterator[Podman]:
    """Run podman with a store of its own."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    pytest.importorskip("podman", reason="the Python package podman is not installed")
    directory = Path(tempfile.mkdtemp(prefix="podman-"))  # podman refuses long paths for its run root
    command: list[str | Path] = [
        "podman",
        "--root",
        directory / "store",
        "--runroot",
        directory / "run",
        "--storage-driver=vfs",
    ]

    def run(*arguments: str | Path) -> str:
        local = {name: value for name, value in os.environ.items() if name != "CONTAINER_HOST"}
        done = subprocess.run([*command, *arguments], env=local, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    run.command = command  # type: ignore[attr-defined]
    yield run
    subprocess.run(["rm", "-rf", directory], check=True)


@pytest.fixture
def service(podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A podman service on a socket of its own, named in CONTAINER_HOST."""
    socket = tmp_path / "podman.sock"
    url = f"unix://{socket}"
    command = [*podman.command, "system", "service", "--time=0", url]  # type: ignore[attr-defined]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not socket.exists():
            assert process.poll() is None
            time.sleep(0.02)
        monkeypatch.setenv("CONTAINER_HOST", url)
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def image(podman: Podman, tmp_path: Path, rich_tree: Path, gnu_tar: Any) -> str:
    """An image of the rich tree with a configuration, imported by podman from a tar."""
    (tmp_path / "root.tar").write_bytes(gnu_tar(rich_tree))
    changes = [
        'CMD=["/bin/sh"]',
        "ENV=A=b",
        "EXPOSE=80/tcp",
        "USER=www-data",
        "WORKDIR=/srv",
        "STOPSIGNAL=SIGQUIT",
    ]
    options = [option for change in changes for option in ("--change", change)]
    podman("import", *options, tmp_path / "root.tar", "localhost/made:v1")
    return "localhost/made:v1"


def test_image_comes_out_of_podmans_store(store: Any, service: str, image: str, rich_tree: Path) -> None:
    base = store.take(f"podman:{image}")
    # podman stores layers without the root's own entry and sub-seconds; all else must be the same.
    assert _differences(rich_tree, base) == []
    assert base.record.image is not None
    assert base.record.image.command == ("/bin/sh",)
    assert base.record.image.environment["A"] == "b"
    assert base.record.image.ports == (80,)
    assert base.record.image.user == "www-data"
    assert base.record.image.directory == "/srv"
    assert base.record.image.stop_signal == "3"
    base.verify()


@pytest.mark.parametrize("format", ["docker-archive", "oci-archive", "oci-dir"])
def test_what_podman_saves_is_imported(
    store: Any, podman: Podman, image: str, rich_tree: Path, tmp_path: Path, format: str
) -> None:
    podman("save", "--format", format, "-o", tmp_path / "saved", image)
    base = store.take(tmp_path / "saved")
    assert _differences(rich_tree, base) == []
    assert base.record.image.command == ("/bin/sh",)


def test_second_layer_made_by_podman_goes_over_the_first(
    store: Any, podman: Podman, image: str, service: str, tmp_path: Path
) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context/new").write_text("new")
    (tmp_path / "context/Containerfile").write_text(
        f"FROM {image}\nCOPY new /var/www/page\nCOPY new /added\n"
    )
    podman("build", "--network=none", "-t", "localhost/made:v2", tmp_path / "context")
    base = store.take("podman:localhost/made:v2")
    assert (base.root / "var/www/page").read_text() == "new"
    assert (base.root / "added").read_text() == "new"
    assert (base.root / "etc/passwd").is_file()


def test_layers_add_up_to_what_podman_makes_of_them(
    store: Any, podman: Podman, images: Any, tar: Any, tmp_path: Path
) -> None:
    lower = [
        tar.directory("gone"),
        tar.file("gone/a/b", b"x"),
        tar.directory("opaque", mode=0o711),
        tar.file("opaque/old"),
        tar.directory("opaque/sub"),
        tar.file("opaque/sub/old"),
        tar.directory("kept", mtime=7),
        tar.file("kept/a", b"a"),
        tar.file("kept/b", b"b"),
        tar.hard_link("kept/c", "kept/b"),
        tar.symlink("turns", "kept"),
        tar.directory("flat"),
        tar.file("flat/x"),
    ]
    upper = [
        tar.file(".wh.gone"),
        tar.directory("opaque", mode=0o750),
        tar.file("opaque/.wh..wh..opq"),
        tar.directory("opaque/sub"),
        tar.file("opaque/sub/new", b"n"),
        tar.directory("kept", mtime=8),
        tar.file("kept/.wh.a"),
        tar.file("kept/b", b"other"),
        tar.hard_link("kept/d", "kept/c"),
        tar.directory("turns"),
        tar.file("turns/in", b"i"),
        tar.file("flat", b"f"),
    ]
    archive = tmp_path / "image.tar"
    archive.write_bytes(images.docker_archive(tar.bytes_of(*lower), tar.bytes_of(*upper)))
    podman("load", "-i", archive)
    base = store.take(archive)
    assert _differences(Path(podman("image", "mount", "localhost/made:latest").strip()), base) == []


def test_image_that_podman_lacks_is_named(store: Any, service: str) -> None:
    with pytest.raises(SourceUnavailable, match="podman has no image localhost/none:v1: podman pull"):
        store.take("podman:localhost/none:v1")
    assert store.is_clean()


def test_without_the_service_the_error_says_how_to_start_it(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"unix://{tmp_path}/nobody.sock"
    monkeypatch.setenv("CONTAINER_HOST", url)
    with pytest.raises(SourceUnavailable, match=f"start it: podman system service --time=0 {url}"):
        store.take("podman:localhost/made:v1")
    assert store.is_clean()


def _differences(tree: Path, base: Any) -> list[Any]:
    ours = {entry.path: entry for entry in base.entries()}
    theirs = {entry.path: entry for entry in scan_tree(tree)}
    del ours["."], theirs["."]
    paths = sorted(ours.keys() | theirs.keys())
    pairs = [(theirs.get(path), ours.get(path)) for path in paths]
    return [pair for pair in pairs if pair[0] != pair[1]]
