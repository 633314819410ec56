"""Keep an image archive that comes as a stream, since its parts are needed in another order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from webserv_rt.storage.errors import refused_by_system
from webserv_rt.storage.free_space import FreeSpace
from webserv_rt.storage.progress import Progress, ProgressCallback


@contextmanager
def spooled(
    pieces: Iterable[bytes], directory: Path, space: FreeSpace, callback: ProgressCallback | None
) -> Iterator[int]:
    """Give a descriptor of a nameless file in DIRECTORY that holds PIECES. Raises `PoolFull`."""
    progress = Progress(callback)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for piece in pieces:
            space.claim(len(piece), "the image archive")
            try:
                rest = memoryview(piece)
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError as error:
                raise refused_by_system("write", "the image archive", error) from error
            progress.advance(len(piece))
        yield file.fileno()
