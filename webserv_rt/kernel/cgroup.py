"""Control groups on pure v2, hybrid and pure v1 hosts; see native/cgroup.h for the mechanism."""

from __future__ import annotations

import enum
import errno
import math
import os
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any

from webserv_rt._native import ffi, lib
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.error import KernelError, check, new_error


class Layout(enum.Enum):
    """Which kinds of cgroup hierarchies the host has mounted."""

    NONE = lib.WSRT_CGROUP_NONE
    V2 = lib.WSRT_CGROUP_V2
    HYBRID = lib.WSRT_CGROUP_HYBRID
    V1 = lib.WSRT_CGROUP_V1


_CONTROLLERS = {
    "memory": lib.WSRT_CGROUP_MEMORY,
    "cpu": lib.WSRT_CGROUP_CPU,
    "cpuacct": lib.WSRT_CGROUP_CPUACCT,
    "pids": lib.WSRT_CGROUP_PIDS,
    "io": lib.WSRT_CGROUP_IO,
    "freezer": lib.WSRT_CGROUP_FREEZER,
}

_LIMITS = {
    "memory_bytes": lib.WSRT_CGROUP_LIMIT_MEMORY,
    "memory_high_bytes": lib.WSRT_CGROUP_LIMIT_MEMORY_HIGH,
    "swap_bytes": lib.WSRT_CGROUP_LIMIT_SWAP,
    "cpu_weight": lib.WSRT_CGROUP_LIMIT_CPU_WEIGHT,
    "cpu_quota_us": lib.WSRT_CGROUP_LIMIT_CPU_QUOTA,
    "pids": lib.WSRT_CGROUP_LIMIT_PIDS,
    "io_weight": lib.WSRT_CGROUP_LIMIT_IO_WEIGHT,
    "io_read_bytes_per_s": lib.WSRT_CGROUP_LIMIT_IO_READ,
    "io_write_bytes_per_s": lib.WSRT_CGROUP_LIMIT_IO_WRITE,
}


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy: its version, its controllers, and the directory that groups are made in.

    `refusal` is the errno that says why no directory may be written; None where one may.
    """

    version: int
    controllers: frozenset[str]
    directory: str
    refusal: int | None


@dataclass(frozen=True)
class Limits:
    """What a group may use; None leaves a limit as it is (a new group has none).

    Weights have the v2 scale (1 to 10,000; everybody else has 100). `swap_bytes=0` is "no swap". The io rates
    hold for the block device (major, minor) that `io_device` names.
    """

    memory_bytes: int | None = None
    memory_high_bytes: int | None = None
    swap_bytes: int | None = None
    cpu_weight: int | None = None
    cpu_quota_us: int | None = None
    cpu_period_us: int | None = None
    pids: int | None = None
    io_weight: int | None = None
    io_read_bytes_per_s: int | None = None
    io_write_bytes_per_s: int | None = None
    io_device: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if (self.io_read_bytes_per_s or self.io_write_bytes_per_s) and self.io_device is None:
            raise ValueError("io_read_bytes_per_s and io_write_bytes_per_s need io_device=(major, minor)")
        for name in ("cpu_weight", "io_weight"):
            weight = getattr(self, name)
            if weight is not None and not 1 <= weight <= 10_000:
                raise ValueError(f"{name}={weight}: a weight is from 1 to 10000")

    def to_native(self) -> Any:
        """Return a `struct wsrt_cgroup_limits *`."""
        native = ffi.new("struct wsrt_cgroup_limits *")
        for field in fields(self):
            if field.name != "io_device":
                value = getattr(self, field.name)
                setattr(native, field.name, -1 if value is None else value)
        native.io_device_major, native.io_device_minor = self.io_device or (0, 0)
        return native


@dataclass(frozen=True)
class Statistics:
    """What a group has used; None is what this host does not count."""

    memory_bytes: int | None
    memory_peak_bytes: int | None
    memory_anon_bytes: int | None
    memory_file_bytes: int | None
    memory_kernel_bytes: int | None
    oom_kills: int | None
    cpu_us: int | None
    cpu_user_us: int | None
    cpu_system_us: int | None
    cpu_throttled_us: int | None
    pids: int | None
    io_read_bytes: int | None
    io_written_bytes: int | None


class CgroupHost:
    """The hierarchies of this host, found once; the groups made on it are named by relative paths.

    Holds one descriptor per hierarchy until `close`.
    """

    def __init__(self) -> None:
        error = new_error()
        self.native = ffi.new("struct wsrt_cgroup_mounts *")
        check(lib.wsrt_cgroup_discover(self.native, error), error)
        self.layout = Layout(self.native.layout)
        self.hierarchies = tuple(
            _hierarchy(self.native.hierarchies[i]) for i in range(self.native.n_hierarchies)
        )

    def close(self) -> None:
        """Give the descriptors back; groups of this host cannot be used any more."""
        lib.wsrt_cgroup_close(self.native)

    def __enter__(self) -> CgroupHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self, path: str) -> Cgroup:
        """Make the group PATH in every hierarchy, parents included; all or nothing."""
        error = new_error()
        check(lib.wsrt_cgroup_create(self.native, path.encode(), error), error)
        return Cgroup(self, path)

    def group(self, path: str) -> Cgroup:
        """Name a group that exists already, if only in part (after a crash)."""
        return Cgroup(self, path)

    def children(self, path: str) -> list[str]:
        """Return the names of the groups directly below PATH in any hierarchy, sorted.

        A PATH that does not exist has none.
        """
        error = new_error()
        check(lib.wsrt_cgroup_check_path(path.encode(), error), error)
        names: set[str] = set()
        for hierarchy in self._usable_fds():
            names |= _subdirectories(path, hierarchy)
        return sorted(names)

    def _usable_fds(self) -> list[int]:
        fds = [self.native.hierarchies[i].fd for i in range(self.native.n_hierarchies)]
        return [fd for fd in fds if fd >= 0]


@dataclass(frozen=True)
class Cgroup:
    """One group, known by its path in every hierarchy of HOST. Times are in seconds."""

    host: CgroupHost
    path: str

    def limit(self, limits: Limits) -> tuple[str, ...]:
        """Apply LIMITS; returns the names of those that this host does not offer."""
        error, unapplied = new_error(), ffi.new("unsigned *")
        result = lib.wsrt_cgroup_limit(self.host.native, self._name, limits.to_native(), unapplied, error)
        check(result, error)
        return tuple(name for name, bit in _LIMITS.items() if unapplied[0] & bit)

    def open_entry(self) -> Entry:
        """Open the ways into the group, for the process that spawn is about to make."""
        error, native = new_error(), ffi.new("struct wsrt_cgroup_entry *")
        check(lib.wsrt_cgroup_open_entry(self.host.native, self._name, native, error), error)
        born_in = Descriptor(native.v2_fd) if native.v2_fd >= 0 else None
        return Entry(born_in, tuple(Descriptor(native.tasks_fds[i]) for i in range(native.n_tasks)))

    def freeze(self, timeout_s: float = 1.0) -> None:
        """Stop every process of the group and below; ETIMEDOUT leaves the request standing."""
        error = new_error()
        check(lib.wsrt_cgroup_freeze(self.host.native, self._name, 1, _ms(timeout_s), error), error)

    def thaw(self, timeout_s: float = 1.0) -> None:
        """Let the processes continue."""
        error = new_error()
        check(lib.wsrt_cgroup_freeze(self.host.native, self._name, 0, _ms(timeout_s), error), error)

    def kill(self, timeout_s: float = 5.0) -> None:
        """Send SIGKILL to every process of the group and below, without waiting for their end."""
        error = new_error()
        check(lib.wsrt_cgroup_kill(self.host.native, self._name, _ms(timeout_s), error), error)

    def wait_empty(self, timeout_s: float = 5.0) -> None:
        """Wait until no process is left in the group or below."""
        error = new_error()
        check(lib.wsrt_cgroup_wait_empty(self.host.native, self._name, _ms(timeout_s), error), error)

    def destroy(self, timeout_s: float = 5.0) -> None:
        """Remove the group and those below it wherever they exist, waiting while processes exit."""
        error = new_error()
        check(lib.wsrt_cgroup_destroy(self.host.native, self._name, _ms(timeout_s), error), error)

    def pids(self) -> list[int]:
        """Return the ids of the processes in the group and below."""
        capacity = 256
        while True:
            error, pids = new_error(), ffi.new("pid_t[]", capacity)
            count = lib.wsrt_cgroup_pids(self.host.native, self._name, pids, capacity, error)
            if check(count, error) <= capacity:
                return list(pids[0:count])
            capacity = count * 2

    def statistics(self) -> Statistics:
        """Return what the group has used so far."""
        error, native = new_error(), ffi.new("struct wsrt_cgroup_statistics *")
        check(lib.wsrt_cgroup_statistics(self.host.native, self._name, native, error), error)
        values = {field.name: getattr(native, field.name) for field in fields(Statistics)}
        return Statistics(**{name: None if value < 0 else value for name, value in values.items()})

    @property
    def _name(self) -> bytes:
        return self.path.encode()


@dataclass(frozen=True)
class Entry:
    """The ways into a group for one new process: `spawn(cgroup=born_in)`, `Plan.join_cgroup` of each `tasks`.

    The plan has to join before it forks or unshares its cgroup namespace; native/cgroup.h says why.
    """

    born_in: Descriptor | None
    tasks: tuple[Descriptor, ...]

    def close(self) -> None:
        """Close the descriptors; closing twice is harmless."""
        for descriptor in (self.born_in, *self.tasks):
            if descriptor is not None:
                descriptor.close()

    def __enter__(self) -> Entry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _hierarchy(native: Any) -> Hierarchy:
    return Hierarchy(
        version=native.version,
        controllers=frozenset(name for name, bit in _CONTROLLERS.items() if native.controllers & bit),
        directory=os.fsdecode(ffi.string(native.directory)),
        refusal=native.code if native.fd < 0 else None,
    )


def _subdirectories(path: str, base_fd: int) -> set[str]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=base_fd)
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise KernelError("list cgroups below", path, error.errno or errno.EIO) from None
    try:
        with os.scandir(fd) as entries:
            return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    finally:
        os.close(fd)


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)
