"""Makes Django importable in an interpreter started with -S.

All that the shop needs of site.py is one directory on sys.path. Without it, start-up costs 3 ms less, and the
.pth files that packages (an editable install, say) leave in a virtual environment do not run.
"""

import os
import sys
from pathlib import Path


def add_virtual_environment() -> None:
    """Put the packages of the virtual environment that the interpreter was started from on sys.path.

    Raises SystemExit, naming the directory, when the interpreter is not that of a virtual environment.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = Path(sys.executable).parent.parent / "lib" / version / "site-packages"
    if not packages.is_dir():
        sys.exit(f"shop: {packages} does not exist: start the shop with a virtual environment's python3")
    if str(packages) not in sys.path:
        sys.path.append(str(packages))
    os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
