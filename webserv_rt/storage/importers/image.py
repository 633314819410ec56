"""What an image is once it has been found: a configuration, and layers to be applied in order."""

from __future__ import annotations

import io
import os
from typing import Any, NamedTuple

from webserv_rt.storage.beneath import join, split
from webserv_rt.storage.errors import ImportRefused, SourceDamaged, shown
from webserv_rt.storage.image_config import ImageConfig
from webserv_rt.storage.importers.archive import read_to_end, write_entry
from webserv_rt.storage.importers.archive_path import normalised
from webserv_rt.storage.importers.blobs import Blobs, Verifier, checked_digest
from webserv_rt.storage.importers.streams import BUFFER_BYTES, Metered, decompressed
from webserv_rt.storage.importers.tar_reader import TarReader
from webserv_rt.storage.progress import Progress, ProgressCallback
from webserv_rt.storage.tree_writer import TreeWriter

_WHITEOUT = ".wh."
_AUFS = ".wh..wh."  # aufs's own; of these only the opaque marker means anything
_OPAQUE = ".wh..wh..opq"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}


class Layer(NamedTuple):
    """One layer: its file, the digest of the file where one is known, and that of the tar inside."""

    name: str
    digest: str | None
    diff_id: str


class Image(NamedTuple):
    """An image's configuration and its layers, the lowest first."""

    config: ImageConfig
    layers: list[Layer]


def host_architecture() -> str:
    """Return the architecture of this machine as images call it."""
    machine = os.uname().machine
    return _ARCHITECTURES.get(machine, machine)


def wrong_platform(platform: str) -> ImportRefused:
    """Return the refusal of an image for PLATFORM."""
    here = f"linux/{host_architecture()}"
    return ImportRefused(
        f"the image is for {platform}, this machine is {here}; get the image for this platform"
    )


def image_of(config: Any, layers: list[tuple[str, str | None]]) -> Image:
    """Return the image that CONFIG, an image configuration, describes, its LAYERS being (file name, digest).

    Raises `ImportRefused` when it is for another machine or its parts do not fit.
    """
    if not isinstance(config, dict):
        raise SourceDamaged("the image's configuration is no object")
    system, architecture = config.get("os", "linux"), config.get("architecture", host_architecture())
    if (system, architecture) != ("linux", host_architecture()):
        raise wrong_platform(f"{system}/{architecture}")
    rootfs = config.get("rootfs")
    diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(diff_ids, list) or len(diff_ids) != len(layers):
        raise SourceDamaged(
            f"the image's configuration does not list its {len(layers)} layers in rootfs.diff_ids"
        )
    return Image(
        ImageConfig.from_oci(config.get("config")),
        [Layer(*layer, checked_digest(diff_id)) for layer, diff_id in zip(layers, diff_ids, strict=True)],
    )


def write_image(image: Image, blobs: Blobs, writer: TreeWriter, callback: ProgressCallback | None) -> None:
    """Write the layers of IMAGE, one over the other, through WRITER. Every digest is checked."""
    sizes = [blobs.size(layer.name) or 0 for layer in image.layers]
    progress = Progress(callback, sum(sizes))
    for layer in image.layers:
        _write_layer(layer, blobs, writer, progress)
    progress.finish()


def _write_layer(layer: Layer, blobs: Blobs, writer: TreeWriter, progress: Progress) -> None:
    what = f"the layer {shown(layer.name)}"
    tar_digest = Verifier(layer.diff_id, f"{what}, decompressed,")
    file_digest = Verifier(layer.digest, what) if layer.digest else None
    with blobs.open(layer.name) as file:
        observers = [file_digest.update] if file_digest else []
        source = Metered(file, lambda piece: progress.advance(len(piece)), *observers)
        compressed = decompressed(source)
        stream = io.BufferedReader(Metered(compressed, tar_digest.update), BUFFER_BYTES)
        _write_entries(TarReader(stream), writer)
        read_to_end(stream)
        while source.read(BUFFER_BYTES):
            pass
    tar_digest.check()
    if file_digest:
        file_digest.check()


def _write_entries(reader: TarReader, writer: TreeWriter) -> None:
    """Write one layer. The digest over all of it stands in for the end marker, which some tools leave out."""
    writer.begin_layer()
    for entry in reader:
        path = normalised(entry.name)
        directory, name = split(path)
        if name == _OPAQUE:
            writer.hide_children(directory)
        elif any(part.startswith(_AUFS) for part in path.split("/")):
            continue
        elif name.startswith(_WHITEOUT):
            hidden = name[len(_WHITEOUT) :]
            if hidden in ("", ".", ".."):
                raise ImportRefused(f"the whiteout {shown(entry.name)} names no entry")
            writer.hide(join(directory, hidden))
        else:
            write_entry(writer, reader, entry, path)
