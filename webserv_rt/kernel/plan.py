"""The plan that our static program carries out inside an instance (encoding: native/plan.h)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webserv_rt._native import lib
from webserv_rt.kernel.descriptor import Descriptor

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWCGROUP: Final = 0x02000000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000
CLONE_NEWTIME: Final = 0x00000080

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8

WAIT_NONE: Final = 0
WAIT_TCP: Final = 1
WAIT_UNIX: Final = 2
WAIT_PATH: Final = 3


@dataclass(frozen=True)
class Wait:
    """What must be there before the next service starts."""

    kind: int = WAIT_NONE
    port: int = 0
    path: str = ""
    timeout_ms: int = 0


@dataclass(frozen=True)
class Program:
    """A program with its user, as it is to be started inside the instance; ids are those inside."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    uid: int = 0
    gid: int = 0
    groups: Sequence[int] = ()
    runs_once: bool = False
    wait: Wait = Wait()


class Plan:
    """Steps in order, with the descriptors that they name; a plan keeps its descriptors open."""

    def __init__(self) -> None:
        self._steps: list[bytes] = []
        self.descriptors: list[Descriptor] = []

    def _add(self, kind: int, numbers: Sequence[int] = (), texts: Sequence[str | bytes] = ()) -> None:
        parts = [struct.pack(f"<3I{len(numbers)}q", kind, len(numbers), len(texts), *numbers)]
        for text in texts:
            raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
            if b"\0" in raw:
                raise ValueError(f"{raw!r} holds a NUL byte, which no path, argument or name can")
            parts.append(struct.pack("<I", len(raw)) + raw + b"\0")
        self._steps.append(b"".join(parts))

    def _index(self, descriptor: Descriptor | None) -> int:
        if descriptor is None:
            return -1
        self.descriptors.append(descriptor)
        return len(self.descriptors) - 1

    def join_cgroup(self, tasks: Descriptor) -> None:
        """Join the v1 hierarchy whose `tasks` file this is."""
        self._add(lib.WSRT_STEP_JOIN_CGROUP, [self._index(tasks)])

    def unshare(self, flags: int) -> None:
        """Make new namespaces of the given kinds."""
        self._add(lib.WSRT_STEP_UNSHARE, [flags])

    def enter(self, namespace: Descriptor, flags: int) -> None:
        """Enter a namespace, or those of the given kinds of the process behind a pidfd."""
        self._add(lib.WSRT_STEP_ENTER, [self._index(namespace), flags])

    def host_name(self, name: str) -> None:
        """Set the host name of the (new) uts namespace."""
        self._add(lib.WSRT_STEP_HOST_NAME, texts=[name])

    def root(self, mount: Descriptor) -> None:
        """Make the detached mount the root; the old one goes."""
        self._add(lib.WSRT_STEP_ROOT, [self._index(mount)])

    def mount(self, kind: str, target: str, flags: int, data: str = "") -> None:
        """Mount a filesystem of `kind` on `target`."""
        self._add(lib.WSRT_STEP_MOUNT, [flags], [kind, target, data])

    def attach(self, mount: Descriptor, target: str) -> None:
        """Attach a detached mount on `target`."""
        self._add(lib.WSRT_STEP_ATTACH, [self._index(mount)], [target])

    def mask(self, path: str) -> None:
        """Hide a file or directory, where there is one."""
        self._add(lib.WSRT_STEP_MASK, texts=[path])

    def read_only(self, path: str) -> None:
        """Make a directory read-only, where there is one."""
        self._add(lib.WSRT_STEP_READ_ONLY, texts=[path])

    def devices(self, root_id: int) -> None:
        """Make /dev with the usual nodes, owned by the host id that is root inside."""
        self._add(lib.WSRT_STEP_DEVICES, [root_id])

    def open_files(self, limit: int) -> None:
        """Set the limit of open files, at most the present hard limit."""
        self._add(lib.WSRT_STEP_OPEN_FILES, [limit])

    def confine(self, userns: Descriptor, capabilities: int) -> None:
        """Become root of the user namespace with these capabilities, for good, under the seccomp filter."""
        self._add(lib.WSRT_STEP_CONFINE, [self._index(userns), capabilities])

    def _program(self, kind: int, program: Program, stdio: Sequence[Descriptor | None]) -> None:
        fds = [self._index(descriptor) for descriptor in stdio]
        environment = [f"{name}={value}" for name, value in program.environment.items()]
        wait = program.wait
        numbers = [
            program.uid,
            program.gid,
            int(program.runs_once),
            wait.kind,
            wait.port,
            wait.timeout_ms,
            *fds,
        ]
        counts = [len(program.arguments), len(environment), len(program.groups), *program.groups]
        texts = [program.name, program.directory, wait.path, *program.arguments, *environment]
        self._add(kind, numbers + counts, texts)

    def service(self, program: Program, log: Descriptor) -> None:
        """Have pid 1 start this program, its output going to `log`."""
        self._program(lib.WSRT_STEP_SERVICE, program, [None, log, log])

    def serve(self, stop_signal: int, log: Descriptor) -> None:
        """Be pid 1 for the services named before; its own messages go to `log`."""
        self._add(lib.WSRT_STEP_SERVE, [stop_signal, self._index(log)])

    def fork(self, cgroup: Descriptor | None) -> None:
        """Go on in a child, born in the cgroup v2 directory `cgroup` and in the entered pid namespace.

        The process itself ends as the child does; SIGTERM has it kill the child.
        """
        self._add(lib.WSRT_STEP_FORK, [self._index(cgroup)])

    def become(self, program: Program, stdio: Sequence[Descriptor | None]) -> None:
        """Become this program."""
        self._program(lib.WSRT_STEP_EXEC, program, stdio)

    def encode(self) -> bytes:
        """Return the plan's bytes."""
        return struct.pack("<2I", lib.WSRT_PLAN_MAGIC, len(self._steps)) + b"".join(self._steps)
