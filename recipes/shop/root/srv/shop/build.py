"""Create the database and the pictures of a new shop in SHOP_DATA (/srv/shop/data)."""

import sys
from importlib.util import find_spec
from pathlib import Path

import bootstrap

bootstrap.add_virtual_environment()


def require_compiled_packages() -> None:
    """Refuse packages without bytecode: no instance can write it, so each would compile Django anew."""
    spec = find_spec("django")
    if spec is None or spec.cached is None:
        sys.exit("shop: Django is not installed in the virtual environment")
    if not Path(spec.cached).exists():
        packages = Path(spec.cached).parent.parent.parent
        sys.exit(f"shop: {packages} is not compiled; run python3 -m compileall -q on it")


require_compiled_packages()

import django  # noqa: E402

django.setup()

from shop.seed.build import build  # noqa: E402

build()
