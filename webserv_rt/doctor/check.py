"""One answer of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "degraded", "missing"]


@dataclass(frozen=True)
class Check:
    """What was looked at and what came out.

    `degraded`: instances run, but slower, fewer or with less protection, as `detail` says. `missing`:
    something does not work at all. `advice` tells what to do; it is empty when there is nothing to do.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""
