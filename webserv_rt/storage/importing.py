"""Import a base: lay the source down in a stage, seal it, put it in place by one rename."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from webserv_rt.errors import WebservError
from webserv_rt.storage.base import (
    MANIFEST_FILE,
    RECORD_FILE,
    ROOT_DIRECTORY,
    SITE_FILE,
    Base,
    BaseRecord,
    check_name,
    digest_of_bytes,
    open_base,
)
from webserv_rt.storage.errors import BaseExists, PoolFull
from webserv_rt.storage.free_space import FreeSpace
from webserv_rt.storage.image_config import ImageConfig
from webserv_rt.storage.importers.source import SourceWriter
from webserv_rt.storage.manifest import write_manifest
from webserv_rt.storage.progress import ProgressCallback
from webserv_rt.storage.scan import scan_tree
from webserv_rt.storage.staging import Stage, staged
from webserv_rt.storage.tree_writer import TreeWriter


def import_base(
    source: str | IO[bytes],
    name: str,
    *,
    bases: Path,
    staging: Path,
    site: bytes | None = None,
    check: Callable[[ImageConfig | None], object] = lambda image: None,
    recorded_source: str | None = None,
    progress: ProgressCallback | None = None,
) -> Base:
    """Import SOURCE (see `SourceWriter.write`) as the base NAME into the directory BASES; return it sealed.

    Everything is made in STAGING, on the same filesystem; however this ends, BASES holds all of the base or
    nothing; a maker that is killed leaves its part in STAGING. SITE is the text of the site spec, kept as it
    is. CHECK gets the image's configuration before the base is sealed and may raise. RECORDED_SOURCE is what
    base.json says of SOURCE, when its name alone would mean nothing later.
    Raises `BadBaseName`, `BaseExists`, `ImportRefused` and its kinds, `TreeUnreadable` and `PoolFull`.
    """
    check_name(name)
    if sys.getfilesystemencoding() != "utf-8":
        raise WebservError("file names are read as UTF-8 here; set PYTHONUTF8=1 or a UTF-8 locale")
    if (bases / name).exists():
        raise _exists(name)
    try:
        with staged(staging) as stage:
            image, digests = _lay_down(source, stage, progress)
            check(image)
            told = recorded_source or (source if isinstance(source, str) else "stream")
            _seal(stage, name, told, image, site, digests)
            stage.publish(bases / name)
    except FileExistsError:
        raise _exists(name) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PoolFull(None, None, f"the base {name}") from error
        raise WebservError(f"import of {name} into {bases}: {error}") from error
    return open_base(bases, name)


def _lay_down(
    source: str | IO[bytes], stage: Stage, progress: ProgressCallback | None
) -> tuple[ImageConfig | None, dict[int, str]]:
    """Write the root; return the image's configuration and the files' digests by inode number."""
    os.mkdir(ROOT_DIRECTORY, 0o700, dir_fd=stage.fd)
    root_fd = os.open(ROOT_DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=stage.fd)
    try:
        space = FreeSpace(stage.fd)
        with TreeWriter(root_fd, space) as writer:
            image = SourceWriter(writer, stage.path, space, progress).write(source)
            writer.finish()
            return image, writer.digests
    finally:
        os.close(root_fd)


def _seal(
    stage: Stage,
    name: str,
    source: str,
    image: ImageConfig | None,
    site: bytes | None,
    digests: dict[int, str],
) -> None:
    entries = scan_tree(stage.path / ROOT_DIRECTORY, digests=digests)
    summary = write_manifest(stage.path / MANIFEST_FILE, entries)
    if site is not None:
        (stage.path / SITE_FILE).write_bytes(site)
    record = BaseRecord(
        name=name,
        digest=summary.digest,
        n_entries=summary.n_entries,
        size_bytes=summary.size_bytes,
        source=source,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        image=image,
        site_digest=digest_of_bytes(site) if site is not None else None,
    )
    (stage.path / RECORD_FILE).write_text(json.dumps(record.to_json(), indent=2) + "\n", encoding="ascii")


def _exists(name: str) -> BaseExists:
    return BaseExists(f"there is a base {name} already; remove it (webserv-rt base rm {name}) first")
