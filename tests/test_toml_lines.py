"""Every key of a TOML document is found on the line where it stands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webserv_rt.toml_lines import KeyPath, key_lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENT = Path(__file__).with_name("toml_lines.toml").read_text()


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from leaves(child, (*path, index))
    yield path, value


def test_every_number_is_found_on_its_line() -> None:
    lines = key_lines(DOCUMENT)
    numbers = {path: value for path, value in leaves(tomllib.loads(DOCUMENT)) if isinstance(value, int)}
    assert len(numbers) == 26
    assert {path: lines[path] for path in numbers} == numbers


def test_nothing_is_found_that_is_not_there() -> None:
    assert set(key_lines(DOCUMENT)) == {path for path, _ in leaves(tomllib.loads(DOCUMENT))}


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("dotted",), 4),
        (("array", 3), 18),
        (("array", 4), 20),
        (("table",), 25),
        (("table", "other"), 29),
        (("things",), 32),
        (("things", 1), 42),
        (("things", 0, "parts", 1, "child"), 40),
    ],
)
def test_table_is_found_where_it_is_first_written(path: KeyPath, line: int) -> None:
    assert key_lines(DOCUMENT)[path] == line


def test_parent_that_is_written_after_its_child_keeps_the_first_line() -> None:
    assert key_lines("[a.b]\n[a]\nc = 3\n") == {(): 1, ("a",): 1, ("a", "b"): 1, ("a", "c"): 3}


def test_document_of_this_project_is_found_in_full() -> None:
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text()
    assert set(key_lines(text)) == {path for path, _ in leaves(tomllib.loads(text))}


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "\t \n"])
def test_empty_document_has_its_root_only(text: str) -> None:
    assert key_lines(text) == {(): 1}
