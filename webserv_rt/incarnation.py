"""One incarnation of an instance: the processes, namespaces, layers and cgroup between two resets.

A reset never cleans an incarnation up for further use: it makes another one and gives the old one to the
reaper. Whatever the old one could have touched dies with it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from webserv_rt.errors import WebservError
from webserv_rt.id_ranges import Identity
from webserv_rt.kernel import plan as steps
from webserv_rt.kernel.cgroup import Cgroup, CgroupHost, Limits
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.mount import clone_mount, mount_overlay
from webserv_rt.kernel.plan import Plan
from webserv_rt.kernel.process import Process, spawn
from webserv_rt.stock import Stock
from webserv_rt.storage.layers import WritableLayers
from webserv_rt.template import KEPT_CAPABILITIES, Attached, Template, bind, describe_root

LOG_TAIL_BYTES: Final = 4000


@dataclass(frozen=True)
class Workshop:
    """What every incarnation of one Host is made with."""

    init_program: Descriptor
    directory: Descriptor
    cgroups: CgroupHost
    cgroup_parent: str
    networks: Stock[Descriptor]
    identities: Stock[Identity]
    layers_by_path: bool
    has_project_quota: bool


class Incarnation:
    """Running processes with all that is theirs; made by `start`, ended by `kill` and then `dispose`."""

    def __init__(self, workshop: Workshop, template: Template, name: str) -> None:
        self.workshop = workshop
        self.template = template
        self.name = name
        self._undo = ExitStack()
        self._keeping = threading.Lock()
        self._is_disposed = False
        # Whether the site has answered as its spec says; a spare has before it is frozen.
        self.is_ready = False
        self._has_ended = False
        self._is_killed = False
        with ExitStack() as undo:
            identity = undo.enter_context(workshop.identities.take())
            self.root_id, self.userns = identity.root_id, identity.namespace
            limit_bytes = template.profile.storage_bytes if workshop.has_project_quota else None
            self.layers = WritableLayers(
                workshop.directory, name, self.root_id, template.root_status, limit_bytes
            )
            undo.callback(self.layers.remove)
            self.cgroup: Cgroup = workshop.cgroups.create(f"{workshop.cgroup_parent}/{name}")
            undo.callback(self.cgroup.destroy)
            template.note_unapplied(self.cgroup.limit(template.profile.limits))
            self.network = workshop.networks.take()
            undo.callback(self.network.close)
            self.process = self._spawn()
            undo.callback(self.process.close)
            undo.callback(self.process.wait)
            self._undo = undo.pop_all()

    def _spawn(self) -> Process:
        with ExitStack() as held:
            overlay, attached = self._mounts(held)
            entry = held.enter_context(self.cgroup.open_entry())
            plan = Plan()
            for tasks in entry.tasks:
                plan.join_cgroup(tasks)
            plan.unshare(steps.CLONE_NEWCGROUP | steps.CLONE_NEWTIME)
            plan.enter(self.network, steps.CLONE_NEWNET)
            plan.host_name(self.template.site.hosts[0])
            describe_root(plan, overlay, attached, self.root_id, self.template.profile.shm_bytes)
            plan.open_files(self.template.profile.open_files)
            plan.confine(self.userns, KEPT_CAPABILITIES)
            self._add_programs(plan, held)
            return spawn(self.workshop.init_program, plan, new_instance=True, cgroup=entry.born_in)

    def _mounts(self, held: ExitStack) -> tuple[Descriptor, list[Attached]]:
        template = self.template
        lowers = [
            held.enter_context(clone_mount(layer, userns=self.userns, read_only=True))
            for layer in (template.frame, template.root)
        ]
        by_path = self.workshop.layers_by_path
        overlay = held.enter_context(
            mount_overlay(lowers, self.layers.upper, self.layers.work, by_path=by_path)
        )
        attached = []
        for directory in template.host_directories:
            attached.append(bind(directory))
            held.callback(attached[-1].mount.close)
        for index, source in enumerate(template.data):
            with self.layers.clone_data(source.directory, index) as clone:
                mount = held.enter_context(clone_mount(clone, userns=self.userns))
            attached.append(Attached(mount, source.target))
        return overlay, attached

    def _add_programs(self, plan: Plan, held: ExitStack) -> None:
        site = self.template.site
        logs = [
            held.enter_context(self.layers.open_log(program.name, self.root_id + program.uid))
            for program in self.template.programs
        ]
        if site.is_pid1:
            plan.become(self.template.programs[0], [None, logs[0], logs[0]])
            return
        for program, log in zip(self.template.programs, logs, strict=True):
            plan.service(program, log)
        plan.serve(site.stop_signal, held.enter_context(self.layers.open_log("init", self.root_id)))

    def is_alive(self) -> bool:
        """Return whether pid 1 runs, and nobody has killed it."""
        return not self._is_killed and self.process.wait(0) is None

    def freeze(self) -> None:
        """Stop every process where it is."""
        self.cgroup.freeze()

    def thaw(self) -> None:
        """Let the processes go on, with the processor weight of their profile."""
        self.cgroup.limit(Limits(cpu_weight=self.template.profile.limits.cpu_weight))
        self.cgroup.thaw()

    def give_way(self) -> None:
        """Let everybody else have the processor first (until the next `thaw`)."""
        self.cgroup.limit(Limits(cpu_weight=1))

    def stop(self) -> None:
        """Ask the services to end; return when pid 1 has, or after the site's stop time-out."""
        site = self.template.site
        # Our own pid 1 passes the site's signal on to the services.
        self.process.kill(site.stop_signal if site.is_pid1 else signal.SIGTERM)
        self.process.wait(self.template.site.stop_timeout_s)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the descriptors from being closed by another thread's reset; raises when they are already."""
        with self._keeping:
            if self._is_disposed:
                raise WebservError(f"{self.name} was reset or removed meanwhile")
            yield

    def kill(self) -> None:
        """End every process at once, without waiting: pid 1's death takes its pid namespace with it."""
        self._is_killed = True
        try:
            self.cgroup.kill()
        finally:
            self.process.kill(signal.SIGKILL)

    def log_tail(self) -> str:
        """Return the ends of all logs as an error message shows them, without what a terminal would obey."""
        parts = []
        for name in self.layers.log_names():
            text = self.layers.read_log(name, LOG_TAIL_BYTES).rstrip()
            if text:
                parts.append(f"--- {name}.log ---\n{_printable(text)}")
        return "\n".join(parts) or "(all logs are empty)"

    def dispose(self) -> None:
        """Kill, then give everything back: cgroup, namespaces, layers, ids. Slow; the reaper's work.

        What of it fails may be tried again by another call, except for what was to be given back: that is for
        the Host.
        """
        if not self._has_ended:
            self.kill()
            self.cgroup.wait_empty()
            self._has_ended = True
        with self._keeping:
            self._is_disposed = True
            self._undo.close()


def _printable(text: str) -> str:
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )
