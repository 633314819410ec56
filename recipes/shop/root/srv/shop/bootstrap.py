"""Makes Django importable in an interpreter started with -S.

Reading site.py, its .pth files and sitecustomize costs 10 to 20 ms of every cold start; all that the shop needs of them
is one directory on sys.path.
"""

import os
import sys


def add_virtual_environment() -> None:
    """Put the packages of the virtual environment that the interpreter was started from on sys.path.

    Raises SystemExit, naming the directory, when the interpreter is not that of a virtual environment.
    """
    root = os.path.dirname(os.path.dirname(sys.executable))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = os.path.join(root, "lib", version, "site-packages")
    if not os.path.isdir(packages):
        sys.exit(f"shop: {packages} does not exist: start the shop with the python3 of its virtual environment")
    if packages not in sys.path:
        sys.path.append(packages)
    os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
