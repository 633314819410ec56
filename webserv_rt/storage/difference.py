"""What changed between two trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from webserv_rt.storage.entry import Entry

_FIELDS = [field for field in Entry._fields if field != "path"]


class Difference(NamedTuple):
    """One path that is not the same in two trees; `fields` names what changed, as `Entry` calls it."""

    kind: Literal["added", "removed", "changed"]
    path: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.kind} {ascii(self.path)[1:-1]}"
        return f"{text} ({', '.join(self.fields)})" if self.fields else text


def diff(before: Iterable[Entry], after: Iterable[Entry]) -> Iterator[Difference]:
    """Yield what turns the tree BEFORE into AFTER.

    Changed and added paths come in AFTER's order, then removed ones. BEFORE is held in memory, AFTER is
    read as it comes.
    """
    missing = {entry.path: entry for entry in before}
    for entry in after:
        old = missing.pop(entry.path, None)
        if old is None:
            yield Difference("added", entry.path)
        elif old != entry:
            changed = tuple(field for field in _FIELDS if getattr(old, field) != getattr(entry, field))
            yield Difference("changed", entry.path, changed)
    for path in missing:
        yield Difference("removed", path)
