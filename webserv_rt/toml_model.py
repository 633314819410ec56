"""Read a TOML file into a pydantic model, with every complaint naming file, line and key."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from webserv_rt.errors import WebservError
from webserv_rt.toml_lines import KeyPath, key_lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
}


class Table(BaseModel):
    """One TOML table: strict types, no unknown keys, unchangeable once read."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


TableT = TypeVar("TableT", bound=Table)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a spec; `where` reads "FILE:LINE" (syntax: "FILE:LINE:COLUMN")."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class SpecError(WebservError):
    """A spec is not usable; `problems` lists everything that is wrong with it, and so does the text."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


def load_toml(path: Path, model: type[TableT]) -> TableT:
    """Read the TOML file PATH as a MODEL.

    Raises `SpecError` listing every problem; one that only follows from another (a table that lacks a key
    because the key is misspelt) shows up once the first is mended.
    """
    text = _read_text(path)
    data = _parse(path, text)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = key_lines(text.replace("\r\n", "\n"))
        details = sorted(error.errors(include_url=False), key=lambda item: _line_of(lines, item["loc"]))
        raise SpecError(_problem(path, lines, model, item) for item in details) from None


def refuse(complaints: Mapping[KeyPath, str]) -> None:
    """Raise, inside a validator, one error per complaint (relative key path, message), if there are any."""
    details: list[InitErrorDetails] = []
    for path, text in complaints.items():
        error = PydanticCustomError("refused", "{text}", {"text": text})
        details.append({"type": error, "loc": path, "input": None})
    if details:
        raise ValidationError.from_exception_data("refused", details)


def quote(value: object) -> str:
    """Return VALUE as a user would write it, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def key_name(path: Iterable[str | int]) -> str:
    """Return a key path as people write it: `services[1].wait.tcp`."""
    name = ""
    for part in path:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            name += f".{part if re.fullmatch(r'[A-Za-z0-9_-]+', part) else quote(part)}"
    return name.removeprefix(".")


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SpecError([Problem(str(path), "", f"cannot be read: {error.strerror}")]) from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        problem = Problem(f"{path}:{line}:{column}", "", "not UTF-8 text")
        raise SpecError([problem]) from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SpecError([Problem(str(path), "", "nested too deeply")]) from None
    except tomllib.TOMLDecodeError as error:
        # Attributes for line and column exist from Python 3.14 on only; the wording is the same everywhere.
        place = r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)"
        match = re.fullmatch(place, str(error), re.DOTALL)
        assert match, f"tomllib says it in other words: {error}"
        message, line, column = match.groups()
        if line is None:
            line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        raise SpecError([Problem(f"{path}:{line}:{column}", "", f"not valid TOML: {message}")]) from None


def _problem(path: Path, lines: Mapping[KeyPath, int], model: type[Table], error: ErrorDetails) -> Problem:
    key_path = error["loc"]
    if key_path[-1:] == ("[key]",):  # pydantic's mark of an error in a mapping's key, not its value
        key_path = key_path[:-1]
    return Problem(f"{path}:{_line_of(lines, key_path)}", key_name(key_path), _message(model, error))


def _line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    while path not in lines:
        path = path[:-1]
    return lines[path]


def _message(model: type[Table], error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return _unknown_key(model, error["loc"])
    if kind == "value_error":
        return str(context["error"])
    if kind == "refused":
        return str(context["text"])
    expected = context["expected"].replace("'", '"') if kind == "literal_error" else _EXPECTED.get(kind)
    assert expected, f"no wording for pydantic's {kind}"
    return f"must be {expected}, got {quote(error['input'])}"


def _unknown_key(model: type[Table], path: KeyPath) -> str:
    known = list(_table_at(model, path[:-1]).model_fields)
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    advice = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(sorted(known))}"
    return f"unknown key; {advice}"


def _table_at(model: type[Table], path: KeyPath) -> type[Table]:
    for part in path:
        if isinstance(part, str):
            model = _table_in(model.model_fields[part].annotation) or model
    return model


def _table_in(annotation: Any) -> type[Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next((table for argument in get_args(annotation) if (table := _table_in(argument))), None)
