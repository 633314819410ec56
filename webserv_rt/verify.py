"""Prove that a base is what was sealed, and that its databases were shut down cleanly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from webserv_rt.site import load_site
from webserv_rt.storage.base import Base
from webserv_rt.storage.cleanliness import prove_mariadb_clean, prove_postgresql_clean
from webserv_rt.storage.progress import ProgressCallback

_PROOFS: Final[dict[str, Callable[[Path], None]]] = {
    "mariadb": prove_mariadb_clean,
    "postgresql": prove_postgresql_clean,
}


def prove_databases_clean(root: Path, site_path: Path | None) -> list[str]:
    """Check the databases that the site spec names; return a line for each. Raises `UncleanDatabase`."""
    if site_path is None:
        return []
    proven = []
    for data in load_site(site_path).data:
        if data.database is not None:
            _PROOFS[data.database](root / data.path.lstrip("/"))
            proven.append(f"{data.path}: {data.database} was shut down cleanly")
    return proven


def verify(base: Base, progress: ProgressCallback | None = None) -> list[str]:
    """Read all of the base; return a line for each thing proven. Raises `BaseDamaged`, `UncleanDatabase`."""
    base.verify(progress)
    sealed = f"{base.record.n_entries} entries as sealed, digest {base.record.digest}"
    return [sealed, *prove_databases_clean(base.root, base.site_path)]
