"""A group inside an instance's group, to kill one command of the instance by, with all that it started."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import Final, Protocol

from webserv_rt.kernel.cgroup import Cgroup, Entry
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.kernel.error import KernelError

_EXIT_S: Final = 5.0


class InnerGroup(Protocol):
    """It limits nothing of its own; what is in it counts for the group around it."""

    @property
    def entry(self) -> Entry:
        """The ways in, as long as the entry is open that the group was made with."""

    def kill(self) -> None:
        """Kill every process of the group and below; return when they have ended, after 5 s at most."""

    def remove(self) -> None:
        """Let go of the group; one with processes in it stays until the group around it goes."""


def make_inner_group(outer: Cgroup, entry: Entry, name: str) -> InnerGroup:
    """Make a group inside `outer`, which must not be removed meanwhile and which `entry` leads into."""
    if entry.born_in is not None:
        return _InnerGroupOnV2(entry, entry.born_in, name)
    return _InnerGroupOnV1(outer, name)


class _InnerGroupOnV2:
    """In the v2 hierarchy alone, without controllers: no group beside processes of its parent has any."""

    def __init__(self, outer: Entry, parent: Descriptor, name: str) -> None:
        self._name = name
        self._parent = Descriptor(os.dup(parent.fileno()))
        try:
            os.mkdir(name, 0o755, dir_fd=self._parent.fileno())
            self._directory = open_directory(name, dir_fd=self._parent.fileno())
        except OSError as error:
            raise KernelError("make inner cgroup", name, error.errno or errno.EIO) from None
        self.entry = Entry(self._directory, outer.tasks)

    def kill(self) -> None:
        with self._open("cgroup.kill", os.O_WRONLY) as kill:
            os.write(kill.fileno(), b"1")
        deadline = time.monotonic() + _EXIT_S
        with self._open("cgroup.events", os.O_RDONLY) as events:
            while b"populated 1" in os.pread(events.fileno(), 256, 0) and time.monotonic() < deadline:
                time.sleep(0.001)

    def remove(self) -> None:
        self._directory.close()
        with self._parent, suppress(FileNotFoundError):
            try:
                os.rmdir(self._name, dir_fd=self._parent.fileno())
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise

    def _open(self, name: str, flags: int) -> Descriptor:
        return Descriptor(os.open(name, flags | os.O_CLOEXEC, dir_fd=self._directory.fileno()))


class _InnerGroupOnV1:
    """In every hierarchy: there a group may lie beside processes of its parent."""

    def __init__(self, outer: Cgroup, name: str) -> None:
        self._group = outer.host.create(f"{outer.path}/{name}")
        try:
            self.entry = self._group.open_entry()
        except BaseException:
            self._group.destroy()
            raise

    def kill(self) -> None:
        try:
            self._group.kill(_EXIT_S)
            self._group.wait_empty(_EXIT_S)
        except KernelError as error:
            if error.errno not in (errno.ENOENT, errno.ETIMEDOUT):  # it went with the group around it
                raise

    def remove(self) -> None:
        self.entry.close()
        try:
            self._group.destroy(timeout_s=0)
        except KernelError as error:
            if error.errno != errno.EBUSY:
                raise
