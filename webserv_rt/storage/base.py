"""Bases on disk, sealed and never written again.

`bases/NAME/` holds `root/`, `manifest.jsonl.zst`, `base.json` and, if one came with it, `site.toml`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from webserv_rt.kernel.descriptor import Lock, open_directory
from webserv_rt.storage.difference import diff
from webserv_rt.storage.entry import Entry
from webserv_rt.storage.errors import BadBaseName, BaseDamaged, BaseInUse, BaseNotFound
from webserv_rt.storage.image_config import ImageConfig
from webserv_rt.storage.manifest import manifest_digest, read_manifest
from webserv_rt.storage.progress import Progress, ProgressCallback
from webserv_rt.storage.scan import scan_tree
from webserv_rt.storage.staging import staged

FORMAT = 1
ROOT_DIRECTORY = "root"
MANIFEST_FILE = "manifest.jsonl.zst"
RECORD_FILE = "base.json"
SITE_FILE = "site.toml"

_LOCK_WAIT_S = 1.0

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True)
class BaseRecord:
    """What base.json says.

    `digest` is the manifest's and so the tree's; `size_bytes` that of all files, hard links counted once;
    `created` is in UTC, ISO 8601; `site_digest` is that of site.toml, None without one.
    """

    name: str
    digest: str
    n_entries: int
    size_bytes: int
    source: str
    created: str
    image: ImageConfig | None
    site_digest: str | None

    def to_json(self) -> dict[str, Any]:
        """Return what base.json holds: the record and a digest of it."""
        values = {"format": FORMAT, **asdict(self), "image": self.image.to_json() if self.image else None}
        return {**values, "seal": _seal(values)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> BaseRecord:
        """Return the record that VALUES hold. Raises KeyError, TypeError or ValueError."""
        values = dict(values)
        if values.get("format") != FORMAT:
            raise ValueError(f"format {values.get('format')!r} is not {FORMAT}, which this version reads")
        if values.pop("seal", None) != _seal(values):
            raise ValueError("it does not match its own digest")
        del values["format"]
        image = values.pop("image")
        return cls(image=ImageConfig.from_json(image) if image is not None else None, **values)


@dataclass(frozen=True)
class Base:
    """A sealed base at `path`."""

    path: Path
    record: BaseRecord

    @property
    def name(self) -> str:
        """The name it was imported under."""
        return self.record.name

    @property
    def root(self) -> Path:
        """The root filesystem, to be mounted and read, never written."""
        return self.path / ROOT_DIRECTORY

    @property
    def site_path(self) -> Path | None:
        """The site spec that came with it."""
        return self.path / SITE_FILE if self.record.site_digest else None

    def entries(self) -> Iterator[Entry]:
        """Yield what the manifest lists. Raises `BaseDamaged`."""
        try:
            yield from read_manifest(self.path / MANIFEST_FILE)
        except (OSError, ValueError) as error:
            raise BaseDamaged(self.name, f"{MANIFEST_FILE}: {error}") from error

    def verify(self, progress: ProgressCallback | None = None) -> None:
        """Read all of it again. Raises `BaseDamaged` with every difference from what was sealed."""
        self._verify_files()
        counted = Progress(progress, self.record.size_bytes)
        found = scan_tree(self.root, on_bytes=counted.advance)
        differences = list(diff(self.entries(), found))
        if differences:
            count = f"{len(differences)} path{'s' if len(differences) > 1 else ''}"
            raise BaseDamaged(self.name, f"{count} not as sealed", differences)
        counted.finish()

    def _verify_files(self) -> None:
        names = {path.name for path in self.path.iterdir()}
        expected = {ROOT_DIRECTORY, MANIFEST_FILE, RECORD_FILE}
        if self.record.site_digest:
            expected.add(SITE_FILE)
        if names != expected:
            odd = ", ".join(sorted(names ^ expected))
            raise BaseDamaged(self.name, f"missing from its directory, or added to it: {odd}")
        try:
            digest = manifest_digest(self.path / MANIFEST_FILE)
        except (OSError, ValueError) as error:
            raise BaseDamaged(self.name, f"{MANIFEST_FILE}: {error}") from error
        if digest != self.record.digest:
            raise BaseDamaged(self.name, f"{MANIFEST_FILE} does not match the digest in {RECORD_FILE}")
        if self.site_path and digest_of_bytes(self.site_path.read_bytes()) != self.record.site_digest:
            raise BaseDamaged(self.name, f"{SITE_FILE} does not match the digest in {RECORD_FILE}")


def check_name(name: str) -> None:
    """Raise `BadBaseName` unless NAME can be a base's."""
    if not _NAME.fullmatch(name):
        raise BadBaseName(
            f"{name!r} cannot name a base: use 1 to 63 lower-case letters, digits, '.', '_' and '-',"
            " a letter or digit first"
        )


def open_base(bases: Path, name: str) -> Base:
    """Return the base NAME in the directory BASES. Raises `BadBaseName`, `BaseNotFound` and `BaseDamaged`."""
    check_name(name)
    path = bases / name
    if not path.is_dir():
        raise _not_found(bases, name)
    try:
        record = BaseRecord.from_json(json.loads((path / RECORD_FILE).read_bytes()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BaseDamaged(name, f"{RECORD_FILE}: {error}") from error
    if record.name != name:
        raise BaseDamaged(name, f"{RECORD_FILE} is that of the base {record.name}")
    return Base(path, record)


def list_bases(bases: Path) -> list[Base]:
    """Return all bases in the directory BASES, by name. Raises `BaseDamaged` for the first unreadable one."""
    return [open_base(bases, path.name) for path in sorted(bases.iterdir())]


def hold_root(base: Base) -> Lock:
    """Open the root of BASE and keep the base from being removed, by any process, while it stays open.

    Raises `BaseNotFound` when it was removed, or another one put in its place, since BASE was opened.
    """
    with ExitStack() as undo:
        try:
            root = Lock(open_directory(base.root).release())
            undo.callback(root.close)
            fcntl.flock(root.fileno(), fcntl.LOCK_SH)  # waits while it is being removed
            is_there = os.path.samestat(os.fstat(root.fileno()), os.stat(base.root))
        except (FileNotFoundError, NotADirectoryError):
            is_there = False
        if not is_there or open_base(base.path.parent, base.name) != base:
            raise BaseNotFound(f"base {base.name} was removed or imported anew just now: ask for it again")
        undo.pop_all()
        return root


def remove_base(bases: Path, name: str, *, staging: Path) -> None:
    """Remove the base NAME: at once from BASES, then, file by file, from STAGING (on the same filesystem).

    A damaged base can be removed too. Raises `BadBaseName`, `BaseNotFound`, and `BaseInUse` when it is held.
    """
    check_name(name)
    try:
        with staged(staging) as stage, _opened(bases / name / ROOT_DIRECTORY) as root_fd:
            if root_fd >= 0:
                _lock_alone(root_fd)
            (bases / name).rename(stage.path / name)
    except FileNotFoundError:
        raise _not_found(bases, name) from None
    except BlockingIOError:
        raise BaseInUse(f"base {name} is in use; stop and remove its instances first") from None


def _lock_alone(root_fd: int) -> None:
    """Lock against all holders; raises BlockingIOError when there is one.

    A process that was cloned for another purpose has copies of all descriptors until it executes its program,
    so a lock that was just given up may seem to be held for an instant.
    """
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(root_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Give a descriptor of the directory PATH, -1 when it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield -1
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _not_found(bases: Path, name: str) -> BaseNotFound:
    known = ", ".join(sorted(path.name for path in bases.iterdir())) or "none at all"
    return BaseNotFound(f"there is no base {name}; there are: {known}")


def digest_of_bytes(data: bytes) -> str:
    """Return the digest of DATA as base.json writes it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _seal(values: dict[str, Any]) -> str:
    return digest_of_bytes(json.dumps(values, sort_keys=True).encode("ascii"))
