"""The Host: one process's hold on a pool, from which its instances and worlds come."""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Literal

from webserv_rt.collector import Collected, collect, end_cgroup, record_cgroup
from webserv_rt.errors import WebservError
from webserv_rt.id_ranges import Identity, IdRanges
from webserv_rt.incarnation import Workshop
from webserv_rt.instance import Instance
from webserv_rt.kernel.cgroup import CgroupHost, Limits
from webserv_rt.kernel.gateway import Gateway
from webserv_rt.kernel.mount import takes_detached_layers
from webserv_rt.kernel.namespace import new_network_namespace
from webserv_rt.kernel.process import open_init_program
from webserv_rt.precedence import Precedence
from webserv_rt.profile import load_profile
from webserv_rt.reaper import Reaper
from webserv_rt.resolved_site import resolve
from webserv_rt.site import SiteSpec, load_site
from webserv_rt.stock import Stock
from webserv_rt.storage.base import Base, hold_root, remove_base
from webserv_rt.storage.errors import BaseInUse
from webserv_rt.storage.importing import import_base
from webserv_rt.storage.layers import WritableLayers
from webserv_rt.storage.pool import Pool
from webserv_rt.storage.progress import ProgressCallback
from webserv_rt.strategy import Cold, Standby, Strategy
from webserv_rt.template import Template
from webserv_rt.world import World

StrategyName = Literal["cold", "standby"]

DEFAULT_POOL: Final = Path("/var/lib/webserv_rt")
CGROUP_PARENT: Final = "webserv_rt"
ALL_INSTANCES_CPU_WEIGHT: Final = 1000
# What base.json gives as the source of a base that was built: the digest of the recipe and all it depends on.
RECIPE_SOURCE: Final = "recipe:"


class Host:
    """Opens a pool, cleans up after dead owners, and starts instances from its bases.

    Everything that a Host makes ends with it: at `close()`, at the end of the `with` block, or, when the
    process is killed, at the next Host (or `webserv-rt gc`) on the pool. Thread-safe.
    """

    def __init__(
        self,
        pool: str | os.PathLike[str] | None = None,
        *,
        n_spares: int = 1,
        n_networks: int = 16,
        cgroup_parent: str = CGROUP_PARENT,
    ) -> None:
        self._owner_pid = os.getpid()
        self._lock = threading.RLock()
        self._n_spares = n_spares
        self._numbers = itertools.count(1)
        self._templates: dict[str, Template] = {}
        self._strategies: dict[tuple[str, str], Strategy] = {}
        self._instances: dict[str, Instance] = {}
        self._worlds: list[World] = []
        self._closed = False
        with ExitStack() as opened:
            self.pool = opened.enter_context(Pool.open(default_pool() if pool is None else Path(pool)))
            self.cgroups = opened.enter_context(CgroupHost())
            self.collected: Collected = collect(self.pool, self.cgroups)
            self.owner = self.pool.new_owner()
            self._cgroup_parent = f"{cgroup_parent}/{self.owner.id}"
            opened.callback(self._end_owner)
            record_cgroup(self.owner, self._cgroup_parent)
            # Its weight is that of all instances together, against every single task of a hierarchy's root.
            for group in (self.cgroups.create(self._cgroup_parent), self.cgroups.group(cgroup_parent)):
                group.limit(Limits(cpu_weight=ALL_INSTANCES_CPU_WEIGHT))
            init_program = opened.enter_context(open_init_program())
            ids = IdRanges()
            opened.callback(ids.close)
            identities = Stock(lambda: Identity(ids, init_program), n_networks)
            opened.callback(identities.close)
            networks = Stock(new_network_namespace, n_networks)
            opened.callback(networks.close)
            self.workshop = Workshop(
                init_program=init_program,
                directory=self.owner.directory,
                cgroups=self.cgroups,
                cgroup_parent=self._cgroup_parent,
                networks=networks,
                identities=identities,
                layers_by_path=not self._takes_detached_layers(),
                has_project_quota=self.pool.status().has_project_quota,
            )
            self.precedence = Precedence()
            self.reaper = Reaper(self.precedence)
            opened.callback(self.reaper.close)
            self.gateway = opened.enter_context(Gateway())
            opened.callback(self._remove_all)
            self._opened = opened.pop_all()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that opened the Host."""
        return os.getpid() != self._owner_pid

    def bases(self) -> list[Base]:
        """Return the pool's bases, by name."""
        return self.pool.bases()

    def base(self, name: str) -> Base:
        """Return a base; raises `BaseNotFound`, naming those there are."""
        return self.pool.base(name)

    def import_base(
        self,
        source: str | IO[bytes],
        name: str,
        *,
        site: Path | None = None,
        recipe: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> Base:
        """Import a directory, archive, OCI layout or `podman:NAME:TAG` as the base `name`.

        `site` is the path of its site spec; without one the image's configuration alone says how it runs. The
        spec is checked against the image before the base exists. Interrupted, nothing is left.
        """
        spec = None if site is None else load_site(site)
        return import_base(
            source,
            name,
            bases=self.pool.path / "bases",
            staging=self.owner.path,
            site=None if site is None else site.read_bytes(),
            check=lambda image: resolve(spec or _bare_site(name), image, placeholders()),
            recorded_source=None if recipe is None else f"{RECIPE_SOURCE}{recipe}",
            progress=progress,
        )

    def remove_base(self, name: str) -> None:
        """Remove a base; refused while an instance or a spare of this host runs from it."""
        with self._lock:
            if any(instance.base_name == name for instance in self._instances.values()):
                raise BaseInUse(f"base {name} has running instances: remove them first")
            for key in [key for key in self._strategies if key[0] == name]:
                self._strategies.pop(key).close()
            self.reaper.drain()
            if (template := self._templates.pop(name, None)) is not None:
                template.close()
            remove_base(self.pool.path / "bases", name, staging=self.owner.path)

    def create(
        self,
        base: str | Base,
        *,
        name: str | None = None,
        strategy: StrategyName = "cold",
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> Instance:
        """Make an instance that does not run yet; `port` 0 lets the kernel choose the port on the host."""
        base = self.base(base) if isinstance(base, str) else base
        with self._lock:
            self._require_open()
            self.pool.require_free()
            name = name or f"{base.name}-{next(self._numbers)}"
            if name in self._instances:
                raise WebservError(f"there is an instance {name} already: remove it, or choose another name")
            instance = Instance(self, name, base.name, self._strategy(base, strategy), address, port)
            self._instances[name] = instance
            return instance

    def launch(
        self,
        base: str | Base,
        *,
        name: str | None = None,
        strategy: StrategyName = "cold",
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> Instance:
        """Make an instance, start it and wait until it is ready; when that fails nothing of it is left."""
        instance = self.create(base, name=name, strategy=strategy, address=address, port=port)
        try:
            instance.launch()
        except BaseException:
            instance.remove()
            raise
        return instance

    def world(
        self,
        bases: Iterable[str],
        *,
        name: str | None = None,
        strategy: StrategyName = "cold",
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> World:
        """Launch one instance of each base as one environment behind one SOCKS5 port."""
        name = name or f"world-{next(self._numbers)}"
        instances: dict[str, Instance] = {}
        with ExitStack() as undo:
            for base in bases:
                instances[base] = undo.enter_context(
                    self.create(base, name=f"{name}/{base}", strategy=strategy)
                )
            world = undo.enter_context(World(self, name, instances, address, port))
            world.reset()
            with self._lock:
                self._require_open()
                self._worlds.append(world)
            undo.pop_all()
        return world

    def instances(self) -> list[Instance]:
        """Return the instances that are not removed."""
        with self._lock:
            return list(self._instances.values())

    def forget(self, instance: Instance) -> None:
        """Called by an instance that was removed."""
        with self._lock:
            self._instances.pop(instance.name, None)

    def forget_world(self, world: World) -> None:
        """Called by a world that was removed."""
        with self._lock:
            if world in self._worlds:
                self._worlds.remove(world)

    def await_spares(self, base: str) -> None:
        """Return when the spares of a standby base are all ready."""
        strategy = self._strategies.get((base, "standby"))
        if isinstance(strategy, Standby):
            strategy.await_spares()

    def close(self) -> None:
        """Remove every world and instance, and give everything back; closing twice is harmless."""
        if self.is_forked:
            return
        self._closed = True
        self._opened.close()

    def _strategy(self, base: Base, name: StrategyName) -> Strategy:
        if (base.name, name) not in self._strategies:
            template = self._template(base)
            strategy: Strategy
            if name == "cold":
                strategy = Cold(self.workshop, template)
            elif name == "standby":
                strategy = Standby(self.workshop, template, self.reaper, self.precedence, self._n_spares)
            else:
                raise WebservError(f"strategy {name!r}: use cold or standby")
            self._strategies[base.name, name] = strategy
        return self._strategies[base.name, name]

    def _template(self, base: Base) -> Template:
        if base.name not in self._templates:
            with ExitStack() as undo:
                root = undo.enter_context(hold_root(base))
                spec = _bare_site(base.name) if base.site_path is None else load_site(base.site_path)
                site = resolve(spec, base.record.image, placeholders())
                profile = load_profile(site.profile)
                self._templates[base.name] = Template(base.name, root, site, profile, self.owner.directory)
                undo.pop_all()
        return self._templates[base.name]

    def _takes_detached_layers(self) -> bool:
        layers = WritableLayers(self.owner.directory, "probe", 0, os.fstat(self.owner.directory.fileno()))
        try:
            return takes_detached_layers(self.owner.directory, layers.upper, layers.work)
        finally:
            layers.remove()

    def _remove_all(self) -> None:
        with self._lock:
            worlds, instances = list(self._worlds), list(self._instances.values())
        with ExitStack() as ended:  # last in, first out; each whatever becomes of the others
            for template in self._templates.values():
                ended.callback(template.close)
            ended.callback(self.reaper.drain)
            for instance in instances:
                ended.callback(instance.remove)
            for world in worlds:
                ended.callback(world.remove)
            # Before the instances: a removal waits for who waits for a spare.
            for strategy in self._strategies.values():
                ended.callback(strategy.close)

    def _end_owner(self) -> None:
        """Remove what is left; what cannot be removed is the next Host's, which knows it by the directory."""
        try:
            end_cgroup(self.cgroups, self._cgroup_parent)
            self.owner.remove()
        finally:
            self.owner.close()

    def _require_open(self) -> None:
        if self._closed:
            raise WebservError("this host is closed: open another one")

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def default_pool() -> Path:
    """Return where the pool is: $WEBSERV_RT_POOL, or /var/lib/webserv_rt."""
    return Path(os.environ.get("WEBSERV_RT_POOL", DEFAULT_POOL))


def placeholders() -> dict[str, str]:
    """Return what the placeholders in a site spec stand for: {venv} is this Python's environment."""
    return {"venv": sys.prefix}


def _bare_site(base_name: str) -> SiteSpec:
    """Return the spec of a base that came without one; its image's configuration says the rest."""
    return SiteSpec(name=re.sub(r"[._]", "-", base_name).strip("-"))
