"""The site that the tests of the runtime run: busybox's web server, its shell, and the host's Python."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from webserv_rt.command import ExecResult
from webserv_rt.instance import Instance
from webserv_rt.world import World

BUSYBOX: Final = Path("/usr/bin/busybox")
PAGE: Final = "toolbox at your service\n"
WEB: Final = '["/bin/httpd", "-f", "-p", "80", "-h", "/srv/www"]'

SITE: Final = f"""
name = "toolbox"
profile = "tiny"
hosts = ["toolbox.test", "www.toolbox.test"]
port = 80

[[services]]
name = "web"
command = {WEB}

[ready]
http = "/"
contains = "at your service"
timeout_s = 30

[[data]]
path = "/var/lib/store"

[[data]]
path = "/var/lib/plain"
mode = "overlay"

[[mounts]]
source = "/usr"
target = "/usr"

[stop]
timeout_s = 2
"""

_DIRECTORIES: Final = (
    "bin",
    "etc",
    "usr",
    "srv/www/cgi-bin",
    "home/visitor",
    "var/lib/store/sub",
    "var/lib/plain",
    "tmp",
    "run",
    "root",
    "opt/tree/deep",
)
_FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nvisitor:x:1000:1000::/home/visitor:/bin/sh\n",
    "etc/group": "root:x:0:\nvisitor:x:1000:\nextra:x:2000:visitor\n",
    "srv/www/index.html": PAGE,
    "var/lib/store/rows": "one\ntwo\nthree\n",
    "var/lib/store/sub/more": "four\n",
    "var/lib/plain/text": "plain\n",
    "opt/tree/leaf": "leaf\n",
    "opt/tree/deep/root": "deep\n",
    "opt/other": "other\n",
    "opt/third": "third\n",
}


def make_root(directory: Path) -> Path:
    """Lay down the root filesystem in DIRECTORY."""
    for name in _DIRECTORIES:
        (directory / name).mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    (directory / "tmp").chmod(0o1777)
    for name, text in _FILES.items():
        (directory / name).write_text(text)
    os.chown(directory / "home/visitor", 1000, 1000)
    (directory / "opt/away").symlink_to("/etc")
    shutil.copy(BUSYBOX, directory / "bin/busybox")
    applets = subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split()
    for applet in applets:
        if applet != "busybox":
            (directory / "bin" / applet).symlink_to("busybox")
    for library in ("lib", "lib64"):
        (directory / library).symlink_to(f"usr/{library}")
    return directory


def make_docker_archive(root: Path, archive: Path, config: Mapping[str, Any]) -> Path:
    """Pack ROOT as `docker save` would, as an image of one layer with the given configuration."""
    layer = subprocess.run(["tar", "-C", root, "-cf-", "."], check=True, capture_output=True).stdout
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    image = {"architecture": architecture, "os": "linux", "config": dict(config)}
    described = json.dumps({**image, "rootfs": {"type": "layers", "diff_ids": [digest]}}).encode()
    name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = json.dumps(
        [{"Config": name, "RepoTags": ["toolbox:1"], "Layers": [f"{digest[7:]}/layer.tar"]}]
    ).encode()
    with tarfile.open(archive, "w") as tar:
        for member, data in (
            ("manifest.json", manifest),
            (name, described),
            (f"{digest[7:]}/layer.tar", layer),
        ):
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive


def sh(instance: Instance, script: str, **options: object) -> str:
    """Run a shell script inside; it has to succeed. Returns its standard output."""
    result: ExecResult = instance.exec(["/bin/sh", "-c", script], **options)  # type: ignore[arg-type]
    assert result.status == 0, f"{script!r} ended with {result.status}: {result.stderr.decode()}"
    return result.stdout.decode()


def python(
    instance: Instance, script: str, *arguments: str, user: str = "root", timeout_s: float = 60
) -> ExecResult:
    """Run a Python script inside, on the host's own interpreter."""
    command: Sequence[str] = ["/usr/bin/python3", "-ISs", "-c", script, *arguments]
    return instance.exec(command, user=user, timeout_s=timeout_s)


def get_through(world: World, host: str, path: str = "/", port: int = 80) -> tuple[int, str]:
    """Ask for a page through the world's SOCKS5 port, as a browser does: the proxy looks the name up."""
    connection = socket.create_connection(("127.0.0.1", world.socks_port), timeout=30)
    with connection:
        connection.sendall(b"\x05\x01\x00")
        assert connection.recv(2, socket.MSG_WAITALL) == b"\x05\x00"
        name = host.encode()
        connection.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + port.to_bytes(2, "big"))
        answer = connection.recv(10, socket.MSG_WAITALL)
        if answer[1] != 0:
            raise ConnectionRefusedError(f"SOCKS answer {answer[1]}")
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, response.read().decode()


def get(instance: Instance, path: str = "/") -> tuple[int, str]:
    """Ask for a page through the instance's port on the host."""
    connection = http.client.HTTPConnection("127.0.0.1", instance.port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
