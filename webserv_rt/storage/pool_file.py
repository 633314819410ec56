"""`pool.json`: what makes a directory a pool."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from webserv_rt.storage.pool_errors import PoolDamaged, PoolVersionUnsupported

NAME: Final = "pool.json"
FORMAT: Final = 1


@dataclass(frozen=True)
class PoolFile:
    """The identity of a pool: a random uuid, and when it was created (ISO 8601, UTC)."""

    uuid: str
    created: str

    @classmethod
    def new(cls) -> PoolFile:
        """Return the identity of a pool that is created now."""
        return cls(str(uuid.uuid4()), datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return json.dumps({"format": FORMAT, "uuid": self.uuid, "created": self.created}).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> PoolFile:
        """Read the file at PATH; raises `PoolDamaged`, `PoolVersionUnsupported`, FileNotFoundError."""
        try:
            fields = json.loads(path.read_text("utf-8"))
            version = fields["format"]
            if version == FORMAT:
                return cls(str(fields["uuid"]), str(fields["created"]))
        except (ValueError, KeyError, TypeError) as error:
            raise PoolDamaged(
                f"{path} is not what this program writes ({error!r}): restore it, or remove the pool by hand"
            ) from None
        raise PoolVersionUnsupported(
            f"{path} has format {version}, this program reads {FORMAT}: use the version that made the pool"
        )
