"""Get an image out of podman's store, through its service (podman-py)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

from webserv_rt.storage.errors import SourceUnavailable

_PIECE_BYTES = 1 << 20


def image_archive(reference: str) -> Iterator[bytes]:
    """Yield, piece by piece, the docker archive of the image REFERENCE ("NAME:TAG" or an id).

    The service is the one that CONTAINER_HOST names, else the user's own. Raises `SourceUnavailable`.
    """
    try:
        import podman
        import podman.errors
        import requests
    except ImportError as error:
        raise SourceUnavailable(
            "podman: sources need the Python package podman: pip install 'webserv-rt[podman]'"
        ) from error
    url = service_url()
    try:
        _reach(url)
        with podman.PodmanClient(base_url=url) as client:
            yield from _save(client, reference)
    except podman.errors.ImageNotFound as error:
        raise SourceUnavailable(f"podman has no image {reference}: podman pull {reference}") from error
    except (podman.errors.APIError, requests.RequestException, OSError) as error:
        raise SourceUnavailable(
            f"podman's service does not answer at {url} ({error});"
            f" start it: podman system service --time=0 {url}"
        ) from error


def service_url() -> str:
    """Return where podman's service listens: CONTAINER_HOST, or what `podman system service` takes itself."""
    if url := os.environ.get("CONTAINER_HOST"):
        return url
    own_directory = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    directory = "/run" if os.geteuid() == 0 else own_directory
    return f"unix://{directory}/podman/podman.sock"


def _reach(url: str) -> None:
    """Raise OSError when nobody listens at URL; podman-py would leave its socket open then."""
    scheme, _, path = url.partition("://")
    if scheme.endswith("unix"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)


def _save(client: Any, reference: str) -> Iterator[bytes]:
    image = client.images.get(reference)
    yield from image.save(chunk_size=_PIECE_BYTES)
