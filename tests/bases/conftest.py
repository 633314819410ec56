"""Real trees, real archives, and a place to import them to that must be left clean."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from webserv_rt.storage.base import Base
from webserv_rt.storage.importing import import_base

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture(autouse=True)
def _root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: owners, device nodes and trusted attributes")


@dataclass
class Store:
    """A directory for bases and one for staging, on one filesystem."""

    bases: Path
    staging: Path

    def take(self, source: str | Path | IO[bytes], name: str = "b", **options: Any) -> Base:
        """Import SOURCE."""
        source = str(source) if isinstance(source, Path) else source
        return import_base(source, name, bases=self.bases, staging=self.staging, **options)

    def is_clean(self) -> bool:
        """Tell whether nothing was left, neither a base nor anything staged."""
        return [*self.bases.iterdir(), *self.staging.iterdir()] == []


def make_store(directory: Path) -> Store:
    store = Store(directory / "bases", directory / "staging")
    store.bases.mkdir()
    store.staging.mkdir()
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Whatever a test does, staging must be empty after it."""
    store = make_store(tmp_path)
    yield store
    assert list(store.staging.iterdir()) == []


@pytest.fixture
def new_store() -> Callable[[Path], Store]:
    return make_store


class Tar:
    """Makes archives member by member, hostile ones too."""

    def file(self, name: str, content: bytes = b"", **fields: Any) -> Member:
        return self.member(name, tarfile.REGTYPE, content, size=len(content), **fields)

    def directory(self, name: str, **fields: Any) -> Member:
        return self.member(name, tarfile.DIRTYPE, **{"mode": 0o755, **fields})

    def symlink(self, name: str, target: str, **fields: Any) -> Member:
        return self.member(name, tarfile.SYMTYPE, linkname=target, **fields)

    def hard_link(self, name: str, target: str, **fields: Any) -> Member:
        return self.member(name, tarfile.LNKTYPE, linkname=target, **fields)

    def device(self, name: str, major: int, minor: int, **fields: Any) -> Member:
        return self.member(name, tarfile.CHRTYPE, devmajor=major, devminor=minor, **fields)

    def member(self, name: str, kind: bytes, content: bytes = b"", **fields: Any) -> Member:
        info = tarfile.TarInfo(name)
        info.type = kind
        for field, value in fields.items():
            setattr(info, field, value)
        return info, content

    def bytes_of(self, *members: Member, format: int = tarfile.PAX_FORMAT) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=format) as archive:
            for info, content in members:
                archive.addfile(info, io.BytesIO(content) if content else None)
        return stream.getvalue()

    def of(self, *members: Member, format: int = tarfile.PAX_FORMAT) -> io.BytesIO:
        return io.BytesIO(self.bytes_of(*members, format=format))


@pytest.fixture
def tar() -> Tar:
    return Tar()


class ImageKit:
    """Makes images by hand, in the layouts that the world's tools write."""

    def digest(self, data: bytes) -> str:
        return "sha256:" + hashlib.sha256(data).hexdigest()

    def config(self, layers: list[bytes], **config: Any) -> bytes:
        """Return an image configuration for the uncompressed LAYERS."""
        return json.dumps(
            {
                "os": "linux",
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [self.digest(layer) for layer in layers]},
            }
        ).encode()

    def put(self, directory: Path, data: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        """Store DATA as a blob of the layout DIRECTORY; return its descriptor."""
        digest = self.digest(data)
        blob = directory / "blobs" / digest.replace(":", "/")
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        return {"mediaType": media_type, "digest": digest, "size": len(data), **more}

    def manifest(
        self,
        directory: Path,
        layers: list[bytes],
        compress: Callable[[bytes], bytes] = gzip.compress,
        **config: Any,
    ) -> dict[str, Any]:
        """Store an image; return the descriptor of its manifest."""
        oci = "application/vnd.oci.image."
        manifest = {
            "schemaVersion": 2,
            "config": self.put(directory, self.config(layers, **config), oci + "config.v1+json"),
            "layers": [self.put(directory, compress(layer), oci + "layer.v1.tar+gzip") for layer in layers],
        }
        return self.put(directory, json.dumps(manifest).encode(), oci + "manifest.v1+json")

    def index(self, directory: Path, *manifests: dict[str, Any]) -> Path:
        """Make DIRECTORY an OCI layout of MANIFESTS."""
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": list(manifests)}))
        return directory

    def layout(self, directory: Path, *layers: bytes, **config: Any) -> Path:
        """Make DIRECTORY an OCI layout of one image."""
        directory.mkdir()
        return self.index(directory, self.manifest(directory, list(layers), **config))

    def docker_archive(self, *layers: bytes, **config: Any) -> bytes:
        """Return what `docker save` writes for an image, manifest.json last."""
        tar = Tar()
        description = self.config(list(layers), **config)
        names = [f"{hashlib.sha256(layer).hexdigest()}.tar" for layer in layers]
        config_name = f"{hashlib.sha256(description).hexdigest()}.json"
        manifest = [{"Config": config_name, "RepoTags": ["localhost/made:latest"], "Layers": names}]
        files = [tar.file(name, layer) for name, layer in zip(names, layers, strict=True)]
        files += [
            tar.file(config_name, description),
            tar.file("manifest.json", json.dumps(manifest).encode()),
        ]
        return tar.bytes_of(*files)


@pytest.fixture
def images() -> ImageKit:
    return ImageKit()


@pytest.fixture
def gnu_tar() -> Callable[..., bytes]:
    """Return the archive of a directory that GNU tar makes, with all that it can keep."""

    def archive(directory: Path, *options: str) -> bytes:
        kept = ["--format=posix", "--xattrs", "--xattrs-include=*"] if not options else []
        command: list[str | Path] = [
            "tar",
            "--numeric-owner",
            "-C",
            directory,
            *kept,
            *options,
            "-cf",
            "-",
            ".",
        ]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout

    return archive


@pytest.fixture
def rsync_differences() -> Callable[[Path, Path], str]:
    """Return what rsync, reading all contents, would change to make one tree the other: nothing if equal."""

    def differences(source: Path, copy: Path) -> str:
        options = ["-n", "-acHAX", "--numeric-ids", "--delete", "--itemize-changes", "--modify-window=-1"]
        options.append("--filter=-x trusted.SGI_ACL_*")  # by which XFS shows ACLs once more
        command = ["rsync", *options, f"{source}/", f"{copy}/"]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    return differences


@pytest.fixture
def rich_tree(tmp_path: Path) -> Path:
    """A tree with every kind of entry and of metadata."""
    root = tmp_path / "rich"
    root.mkdir(mode=0o755)
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "bin").symlink_to("usr/bin")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/su").write_bytes(b"\x7fELF" * 5000)
    os.chown(root / "usr/bin/su", 0, 12)
    (root / "usr/bin/su").chmod(0o6755)
    (root / "usr/bin/ping").write_bytes(b"ping")
    os.link(root / "usr/bin/ping", root / "usr/bin/zping")
    subprocess.run(["setcap", "cap_net_raw+ep", root / "usr/bin/ping"], check=True)
    (root / "var/www").mkdir(parents=True)
    os.chown(root / "var/www", 33, 33)
    (root / "var/www").chmod(0o2775)
    subprocess.run(["setfacl", "-m", "u:1000:rwx,g:50:r-x,d:u:1000:rwx", root / "var/www"], check=True)
    (root / "var/www/page").write_text("hello")
    (root / "var/www/page").chmod(0o640)
    subprocess.run(["setfacl", "-m", "u:1001:rw", root / "var/www/page"], check=True)
    os.setxattr(root / "var/www/page", "user.note", b"\0\xff=binary\n")
    os.setxattr(root / "var", "trusted.note", b"directory")
    (root / "var/dangling").symlink_to("nowhere")
    os.setxattr(root / "var/dangling", "trusted.note", b"link", follow_symlinks=False)
    os.chown(root / "var/dangling", 7, 8, follow_symlinks=False)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "dev").mkdir()
    os.mknod(root / "dev/null", 0o20666, os.makedev(1, 3))
    os.mknod(root / "dev/sda", 0o60660, os.makedev(8, 0))
    os.mkfifo(root / "dev/initctl", 0o600)
    with (root / "var/sparse").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"middle" * 1000)
        file.truncate(9 << 20)
    (root / "var/empty").touch(mode=0o600)
    (root / "var/Empty").write_bytes(b"another case")
    (root / "var/b\udcff\u00e9 \n").write_bytes(b"odd name")
    (root / ("deep/" * 60)).mkdir(parents=True)
    (root / "locked").mkdir(mode=0o000)
    for number, path in enumerate(sorted(root.rglob("*"), key=str)):
        os.utime(path, ns=(0, 1_500_000_000_123_456_789 + number * 10**9), follow_symlinks=False)
    os.utime(root / "var/empty", ns=(0, -5_000_000_000))
    os.utime(root, ns=(0, 1_600_000_000_000_000_000))
    return root
