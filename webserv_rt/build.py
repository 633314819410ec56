"""Build a base from a recipe: root filesystem, files, set-up script in the sandbox, then a sealed import.

A base remembers the digest of what it was built from; building again with the same input does nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Final

from webserv_rt import mmdebstrap
from webserv_rt.errors import WebservError
from webserv_rt.host import RECIPE_SOURCE, Host, placeholders
from webserv_rt.kernel import plan as steps
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.kernel.mount import clone_mount
from webserv_rt.kernel.plan import Plan, Program
from webserv_rt.kernel.process import spawn
from webserv_rt.kernel.remove import remove_tree
from webserv_rt.recipe import Recipe, load_recipe
from webserv_rt.resolved_site import DEFAULT_PATH, ResolvedSite, resolve
from webserv_rt.site import load_site
from webserv_rt.storage.base import Base
from webserv_rt.storage.errors import BaseNotFound
from webserv_rt.template import KEPT_CAPABILITIES, Source, bind, describe_root, open_host_directory

SETUP_DIRECTORY: Final = "setup"
SHM_BYTES: Final = 256 << 20
_MOUNT_POINTS: Final = ("proc", "sys", "dev", "run", "tmp", "etc", SETUP_DIRECTORY)
_N_ERROR_BYTES: Final = 4000
# Raised when the same recipe would now give another base.
_BUILD_VERSION: Final = b"1"


def build(
    host: Host,
    recipe_directory: Path,
    *,
    name: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Base:
    """Return the base that the recipe describes, built when it is not there or its input has changed.

    `say` is told what is being done; `progress` gets bytes done and in all while the base is laid down. An
    interrupted build leaves nothing. Raises `SpecError`, `WebservError` with the script's last output.
    """
    recipe = load_recipe(recipe_directory)
    site = resolve(load_site(recipe_directory / "site.toml"), placeholders=placeholders())
    name = name or site.name
    key = recipe_digest(recipe_directory)
    try:
        present: Base | None = host.base(name)
    except BaseNotFound:
        present = None
    if present is not None and present.record.source == RECIPE_SOURCE + key:
        return present
    with ExitStack() as undo:
        work = f"build-{name}"
        os.mkdir(work, 0o700, dir_fd=host.owner.directory.fileno())
        undo.callback(remove_tree, host.owner.directory.fileno(), work)
        root = host.owner.path / work / "root"
        _lay_out(recipe, recipe_directory, root, say)
        if recipe.setup is not None:
            say(f"running {recipe.setup} in the sandbox")
            _run_setup(host, site, recipe, recipe_directory, root, host.owner.path / work / "setup.log")
        (root / SETUP_DIRECTORY).rmdir()
        say("sealing the base")
        if present is not None:
            host.remove_base(name)
        return host.import_base(
            str(root), name, site=recipe_directory / "site.toml", recipe=key, progress=progress
        )


def recipe_digest(recipe_directory: Path) -> str:
    """Return the digest of all that a recipe's base depends on."""
    digest = hashlib.sha256(_BUILD_VERSION)
    digest.update("/".join(mmdebstrap.release()).encode())
    if b"{venv}" in (recipe_directory / "site.toml").read_bytes():
        # Byte code compiled by one Python is worthless to another, and the set-up may use any package.
        packages = sorted(f"{found.name}={found.version}" for found in metadata.distributions())
        digest.update("\n".join([sys.version, *packages]).encode())
    for path in sorted(recipe_directory.rglob("*")):
        relative = path.relative_to(recipe_directory)
        if any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
            continue
        content = b""
        if path.is_symlink():
            content = bytes(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        mode = path.lstat().st_mode & 0o111
        digest.update(f"{relative}\0{mode}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _lay_out(recipe: Recipe, recipe_directory: Path, root: Path, say: Callable[[str], None]) -> None:
    if recipe.packages:
        say("installing Debian packages")
        mmdebstrap.debian_root(root, recipe.packages, say)
    else:
        root.mkdir(mode=0o755)
        root.chmod(0o755)
    files = recipe_directory / "root"
    if files.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(
            files, root, symlinks=True, dirs_exist_ok=True, ignore=ignored, copy_function=_copy_as_root
        )
    if not recipe.packages:
        _link_into_usr(root)
    for directory in _MOUNT_POINTS:
        (root / directory).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _link_into_usr(root: Path) -> None:
    """Let /bin and the like lead into /usr as they do on this host, whose /usr such a site mounts.

    A recipe cannot bring these links itself: a wheel holds no symbolic links.
    """
    for link in (Path("/bin"), Path("/sbin"), Path("/lib"), Path("/lib64")):
        inside = root / link.name
        if link.is_symlink() and not os.path.lexists(inside):
            inside.symlink_to(link.readlink())


def _copy_as_root(source: str, dest: str) -> None:
    """Copy a recipe's file as git keeps it: content and the executable bit, owned by root."""
    if Path(source).is_symlink():
        Path(dest).symlink_to(Path(source).readlink())
        return
    shutil.copyfile(source, dest)
    Path(dest).chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _run_setup(
    host: Host, site: ResolvedSite, recipe: Recipe, recipe_directory: Path, root: Path, log_path: Path
) -> None:
    assert recipe.setup is not None
    for mount in site.mounts:
        (root / mount.target.lstrip("/")).mkdir(parents=True, exist_ok=True)
    workshop = host.workshop
    with ExitStack() as held:
        identity = held.enter_context(workshop.identities.take())
        root_id, userns = identity.root_id, identity.namespace
        network = held.enter_context(workshop.networks.take())
        cgroup = workshop.cgroups.create(f"{workshop.cgroup_parent}/build-{site.name}")
        held.callback(cgroup.destroy)
        entry = held.enter_context(cgroup.open_entry())
        wanted = [(mount.source, mount.target) for mount in site.mounts]
        wanted.append((str(recipe_directory), f"/{SETUP_DIRECTORY}"))
        sources = [
            Source(held.enter_context(open_host_directory(source)), target) for source, target in wanted
        ]
        mounts = [bind(source) for source in sources]
        for attached in mounts:
            held.callback(attached.mount.close)
        with open_directory(root) as directory:
            root_mount = held.enter_context(clone_mount(directory, userns=userns))
        log = held.enter_context(
            Descriptor(os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        )
        plan = Plan()
        for tasks in entry.tasks:
            plan.join_cgroup(tasks)
        plan.unshare(steps.CLONE_NEWCGROUP)
        plan.enter(network, steps.CLONE_NEWNET)
        plan.host_name(site.hosts[0])
        describe_root(plan, root_mount, mounts, root_id, SHM_BYTES)
        plan.confine(userns, KEPT_CAPABILITIES)
        environment = {"PATH": DEFAULT_PATH, "HOME": "/root", "LANG": "C.UTF-8"}
        script = f"/{SETUP_DIRECTORY}/{recipe.setup}"
        plan.service(Program("setup", ["/bin/sh", script], environment, runs_once=True), log)
        plan.serve(15, log)
        process = spawn(workshop.init_program, plan, new_instance=True, cgroup=entry.born_in)
        held.callback(process.close)
        try:
            status = process.wait()
        finally:
            cgroup.kill()
            cgroup.wait_empty()
            process.wait()
    if status != 0:
        raise WebservError(f"{recipe_directory.name}/{recipe.setup} failed:\n{_tail(log_path)}")


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _N_ERROR_BYTES))
        return file.read().decode("utf-8", "replace")
