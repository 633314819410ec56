"""Map every key of a TOML document to the line that it stands on.

Neither tomllib nor tomlkit tells positions. The text has been accepted by tomllib before it comes here, so
this scanner only has to find its way through valid TOML: it judges nothing and converts no values.
"""

from __future__ import annotations

import re
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\r\n#]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}'  # up to two quotes may stand directly before the closing three
    r"|'''.*?''''{0,2}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line (from 1) of every table, key and array element of TEXT, which must be valid TOML.

    A key that is written several times (a table header, then a sub-table's) keeps its first line.
    """
    scanner = _Scanner(text)
    scanner.scan_document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.lines: dict[KeyPath, int] = {(): 1}
        self._n_elements: dict[KeyPath, int] = {}  # of each array of tables

    def scan_document(self) -> None:
        table: KeyPath = ()
        self._skip(_BLANK)
        while self.position < len(self.text):
            if self._accept("[["):
                table = self._scan_header(closing="]]")
            elif self._accept("["):
                table = self._scan_header(closing="]")
            else:
                self._scan_pair(table)
            self._skip(_BLANK)

    def _scan_header(self, closing: str) -> KeyPath:
        start = self.position
        *parents, name = self._scan_key()
        self._accept(closing)
        path: KeyPath = ()
        for parent in parents:
            path = self._last_element((*path, parent))
            self._record(path, start)
        path = (*path, name)
        self._record(path, start)
        if closing == "]]":
            self._n_elements[path] = self._n_elements.get(path, 0) + 1
            path = self._last_element(path)
            self._record(path, start)
        return path

    def _scan_pair(self, table: KeyPath) -> None:
        start = self.position
        path = table
        for name in self._scan_key():
            path = (*path, name)
            self._record(path, start)
        self._accept("=")
        self._skip(_SPACE)
        self._scan_value(path)

    def _scan_value(self, path: KeyPath) -> None:
        if self._accept("["):
            self._scan_array(path)
        elif self._accept("{"):
            self._scan_inline_table(path)
        elif self.text[self.position] in "\"'":
            self._skip(_STRING)
        else:
            self._skip(_SCALAR)

    def _scan_array(self, path: KeyPath) -> None:
        index = 0
        self._skip(_BLANK)
        while not self._accept("]"):
            element = (*path, index)
            self._record(element, self.position)
            self._scan_value(element)
            index += 1
            self._skip_comma()

    def _scan_inline_table(self, path: KeyPath) -> None:
        self._skip(_BLANK)
        while not self._accept("}"):
            self._scan_pair(path)
            self._skip_comma()

    def _scan_key(self) -> list[str]:
        parts = [self._scan_key_part()]
        while self._accept("."):
            parts.append(self._scan_key_part())
        return parts

    def _scan_key_part(self) -> str:
        self._skip(_SPACE)
        if self.text[self.position] in "\"'":
            quoted = self._skip(_STRING)
            part = str(tomllib.loads(f"key = {quoted}")["key"])
        else:
            part = self._skip(_BARE_KEY)
        self._skip(_SPACE)
        return part

    def _skip_comma(self) -> None:
        self._skip(_BLANK)
        self._accept(",")
        self._skip(_BLANK)

    def _accept(self, token: str) -> bool:
        if not self.text.startswith(token, self.position):
            return False
        self.position += len(token)
        return True

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.position)
        assert match, f"not valid TOML at offset {self.position}"
        self.position = match.end()
        return match.group()

    def _last_element(self, path: KeyPath) -> KeyPath:
        n_elements = self._n_elements.get(path)
        return path if n_elements is None else (*path, n_elements - 1)

    def _record(self, path: KeyPath, position: int) -> None:
        self.lines.setdefault(path, self.text.count("\n", 0, position) + 1)
