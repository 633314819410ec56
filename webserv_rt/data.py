"""The files that come with the package: recipes and cgroup profiles."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_directory(name: str) -> Path:
    """Return where `name` ("recipes", "cgroup_profiles") lies: in the package, or beside it in a checkout."""
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
