"""Find an image in an OCI layout (a directory or an archive of one) or in what `docker save` writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from webserv_rt.storage.errors import ImportRefused, SourceDamaged, SourceUnavailable
from webserv_rt.storage.importers.archive_path import normalised
from webserv_rt.storage.importers.blobs import Blobs, blob_name, read_json
from webserv_rt.storage.importers.image import Image, host_architecture, image_of, wrong_platform

DOCKER_MANIFEST = "manifest.json"
OCI_INDEX = "index.json"
OCI_LAYOUT = "oci-layout"

_REFERENCE_NAMES = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
_MAX_DEPTH = 4


class _Candidate(NamedTuple):
    """One manifest of an index, with the names and the platform that lead to it."""

    digest: str
    names: tuple[str, ...]
    platform: str | None


def find_image(blobs: Blobs, reference: str | None) -> Image:
    """Return the image REFERENCE in BLOBS; with None, the only one that fits this machine.

    Raises `ImportRefused`, `SourceDamaged` and `SourceUnavailable`.
    """
    if blobs.size(DOCKER_MANIFEST) is not None:
        return _docker_image(blobs, reference)
    if blobs.size(OCI_INDEX) is not None:
        return _oci_image(blobs, reference)
    raise SourceDamaged(f"there is neither {OCI_INDEX} nor {DOCKER_MANIFEST}: this is no image")


def _docker_image(blobs: Blobs, reference: str | None) -> Image:
    """Return the image in what `docker save` and `podman save` (docker-archive) write."""
    images = _list(read_json(blobs, DOCKER_MANIFEST), DOCKER_MANIFEST)
    if reference is not None:
        images = [image for image in images if reference in _docker_names(image)]
    image = _only(images, reference, [name for image in images for name in _docker_names(image)])
    try:
        config_name, layer_names = normalised(image["Config"]), [normalised(name) for name in image["Layers"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise SourceDamaged(f"{DOCKER_MANIFEST} does not name a configuration and layers") from error
    stem = config_name.rpartition("/")[2].removesuffix(".json")
    digest = f"sha256:{stem}" if len(stem) == 64 else None
    return image_of(read_json(blobs, config_name, digest), [(name, None) for name in layer_names])


def _oci_image(blobs: Blobs, reference: str | None) -> Image:
    found = list(_candidates(blobs, read_json(blobs, OCI_INDEX), (), _MAX_DEPTH))
    if reference is not None:
        found = [candidate for candidate in found if reference in candidate.names]
    here = f"linux/{host_architecture()}"
    fitting = {candidate.digest: candidate for candidate in found if candidate.platform in (None, here)}
    if found and not fitting:
        platforms = ", ".join(sorted({str(candidate.platform) for candidate in found}))
        raise wrong_platform(platforms)
    names = [name for candidate in fitting.values() for name in candidate.names]
    digest = _only(list(fitting), reference, names)
    manifest = read_json(blobs, blob_name(digest), digest)
    config = _object(_object(manifest, "the manifest").get("config"), "config")
    layers = [_object(layer, "layers") for layer in _list(manifest.get("layers"), "layers")]
    return image_of(
        read_json(blobs, blob_name(config.get("digest")), config.get("digest")),
        [(blob_name(layer.get("digest")), layer["digest"]) for layer in layers],
    )


def _candidates(blobs: Blobs, index: Any, names: tuple[str, ...], depth: int) -> Iterator[_Candidate]:
    """Yield every manifest below INDEX; NAMES are those of the indexes above it."""
    if depth == 0:
        raise ImportRefused(f"the image's indexes are nested more than {_MAX_DEPTH} deep")
    for value in _list(_object(index, "the index").get("manifests"), "manifests"):
        descriptor = _object(value, "manifests")
        annotations = _object(descriptor.get("annotations") or {}, "annotations")
        all_names = (*names, *(str(annotations[key]) for key in _REFERENCE_NAMES if key in annotations))
        name = blob_name(descriptor.get("digest"))
        if "index" in str(descriptor.get("mediaType")) or "manifest.list" in str(descriptor.get("mediaType")):
            yield from _candidates(blobs, read_json(blobs, name, descriptor["digest"]), all_names, depth - 1)
        else:
            yield _Candidate(descriptor["digest"], all_names, _platform(descriptor.get("platform")))


def _platform(value: Any) -> str | None:
    if value is None:
        return None
    return f"{_object(value, 'platform').get('os')}/{value.get('architecture')}"


def _docker_names(image: Any) -> list[str]:
    """Return the names of IMAGE, also in the short form for those that podman and docker put in front."""
    tags = [str(tag) for tag in _list(_object(image, DOCKER_MANIFEST).get("RepoTags") or [], "RepoTags")]
    prefixes = ("docker.io/library/", "docker.io/", "localhost/")
    return tags + [tag.removeprefix(prefix) for tag in tags for prefix in prefixes if tag.startswith(prefix)]


def _only(found: list[Any], reference: str | None, names: list[str]) -> Any:
    if len(found) == 1:
        return found[0]
    if reference is not None and not found:
        raise SourceUnavailable(f"there is no image {reference} in it")
    if not found:
        raise SourceDamaged("there is no image in it")
    known = ", ".join(dict.fromkeys(names)) or "they have no names"
    raise ImportRefused(f"it holds several images; name one of them (oci:PATH:NAME): {known}")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SourceDamaged(f"the image's description: {what} is no object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise SourceDamaged(f"the image's description: {what} is no list")
    return value
