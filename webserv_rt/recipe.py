"""How a site's root filesystem is built (recipes/NAME/recipe.toml)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from webserv_rt.data import data_directory
from webserv_rt.errors import WebservError
from webserv_rt.site_fields import repeated
from webserv_rt.toml_lines import KeyPath
from webserv_rt.toml_model import Problem, SpecError, Table, load_toml, quote, refuse

FILE_NAME = "recipe.toml"
RECIPES = data_directory("recipes")


def _package_name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", value):
        raise ValueError(f"must be the name of a Debian package, got {quote(value)}")
    return value


def _listed_once(packages: tuple[str, ...]) -> tuple[str, ...]:
    complaints: dict[KeyPath, str] = {}
    for index, first in repeated(packages).items():
        complaints[(index,)] = f"{quote(packages[index])} is listed already, as [{first}]"
    refuse(complaints)
    return packages


def _plain_file_name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        raise ValueError(f"must be the name of a file beside {FILE_NAME}, got {quote(value)}")
    return value


class Recipe(Table):
    """A recipe.toml: the Debian packages, and the script that sets the site up inside the new root.

    Without `packages` the root filesystem starts as an empty skeleton whose /bin and the like lead into /usr.
    """

    packages: Annotated[
        tuple[Annotated[str, BeforeValidator(_package_name)], ...],
        Field(strict=False),
        AfterValidator(_listed_once),
    ] = ()
    setup: Annotated[str, BeforeValidator(_plain_file_name)] | None = None


def load_recipe(directory: Path) -> Recipe:
    """Read DIRECTORY/recipe.toml; raises `SpecError`, also when the setup script is not there."""
    path = directory / FILE_NAME
    recipe = load_toml(path, Recipe)
    if recipe.setup is not None and not (directory / recipe.setup).is_file():
        problem = Problem(str(path), "setup", f"there is no file {directory / recipe.setup}")
        raise SpecError([problem])
    return recipe


def find_recipe(name: str) -> Path:
    """Return the directory of a recipe: one of ours by its name, or any directory by its path."""
    for candidate in (RECIPES / name, Path(name)):
        if (candidate / FILE_NAME).is_file():
            return candidate
    ours = ", ".join(sorted(path.parent.name for path in RECIPES.glob(f"*/{FILE_NAME}")))
    raise WebservError(
        f"there is no recipe {name}: ours are {ours}; or give a directory that holds {FILE_NAME}"
    )
