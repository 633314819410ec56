"""The least site there can be: busybox's web server with a data directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

BUSYBOX: Final = Path("/bin/busybox")
NAME: Final = "small"
PAGE: Final = "small but all there\n"

SITE: Final = """
name = "small"
profile = "tiny"
port = 80

[[services]]
name = "web"
command = ["/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/srv"]

[ready]
http = "/"
contains = "all there"
timeout_s = 5

[[data]]
path = "/data"

[stop]
timeout_s = 1
"""


def make(directory: Path) -> tuple[Path, Path]:
    """Lay the site down in DIRECTORY; return its root filesystem and its spec."""
    root, spec = directory / "root", directory / "site.toml"
    for part in ("bin", "etc", "srv", "data/deeper"):
        (root / part).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "srv/index.html").write_text(PAGE)
    (root / "data/deeper/rows").write_text("one\ntwo\n")
    spec.write_text(SITE)
    return root, spec
