"""A stock Debian kernel: its package, unpacked and not installed, and the modules that a guest needs."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

# crc32c is what libcrc32c asks the crypto layer for by name, so that no `depends` leads to it.
MODULES = (
    *("virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "overlay"),
    *("crc32c_generic", "ext4", "xfs", "btrfs", "loop", "bfq"),
)


def unpacked_kernel() -> Path:
    """Return the directory of an unpacked linux-image package, downloading it the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "webserv-rt" / "vm"
    cached = sorted(cache.glob("linux-image-*"), key=lambda path: path.stat().st_mtime)
    return cached[-1] if cached else _download(cache)


def _download(cache: Path) -> Path:
    depends = subprocess.run(
        ["apt-cache", "depends", "linux-image-amd64"], check=True, capture_output=True, text=True
    ).stdout
    match = re.search(r"Depends: (linux-image-\S+)", depends)
    if match is None:
        raise SystemExit("apt knows no linux-image-amd64: run `apt-get update` first")
    package = match[1]
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        # apt's own sandbox user could not write here; there is no need for it to try.
        command = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", package]
        subprocess.run(command, check=True, cwd=directory)
        [archive] = Path(directory).glob("*.deb")
        unpacked = Path(directory, "unpacked")
        subprocess.run(["dpkg-deb", "-x", str(archive), str(unpacked)], check=True)
        unpacked.rename(cache / package)
    return cache / package


def image(kernel: Path) -> Path:
    """Return the bootable image of an unpacked package."""
    [path] = kernel.glob("boot/vmlinuz-*")
    return path


def modules(kernel: Path, names: Iterable[str]) -> list[tuple[str, bytes]]:
    """Return the modules NAMES and all that they depend on, uncompressed, in the order to load them."""
    paths = {_module_name(path): path for path in kernel.glob("**/*.ko*")}
    found: dict[str, bytes] = {}

    def visit(name: str) -> None:
        if name in found or name not in paths:  # not there: built into the kernel
            return
        content = _uncompressed(paths[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", content)
        for other in depends[1].decode().split(",") if depends else []:
            visit(other.replace("-", "_"))
        found[name] = content

    for name in names:
        visit(name)
    return list(found.items())


def _module_name(path: Path) -> str:
    return path.name.partition(".ko")[0].replace("-", "_")


def _uncompressed(path: Path) -> bytes:
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content
