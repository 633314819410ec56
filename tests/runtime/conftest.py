"""A small real site to run instances of, a Host of one's own per test, and nothing left behind by any."""

from __future__ import annotations

import itertools
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "faults"))  # leftovers.py
sys.path.insert(0, str(Path(__file__).parent))

import leftovers
import toolbox as box

from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.kernel.cgroup import CgroupHost
from webserv_rt.storage.pool import Pool

CGROUP_PARENT = f"webserv_rt_tests_{secrets.token_hex(4)}"

# The kernel takes threads, processes and their namespaces apart after it has reported their end.
SETTLING_S = 5.0

NewBase = Callable[..., str]


@pytest.fixture(scope="session")
def cgroup_parent() -> Iterator[str]:
    """The control group below which these tests' Hosts make theirs."""
    with CgroupHost() as cgroups:
        group = cgroups.create(CGROUP_PARENT)
        yield CGROUP_PARENT
        group.destroy()


@pytest.fixture(scope="session")
def toolbox_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root filesystem of busybox and a few files, to import bases from."""
    return box.make_root(tmp_path_factory.mktemp("toolbox"))


@pytest.fixture(scope="session")
def toolbox(
    pool: Pool, cgroup_parent: str, toolbox_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The base `toolbox`: a web server, a shell, the host's /usr, and two data directories."""
    site = tmp_path_factory.mktemp("site") / "site.toml"
    site.write_text(box.SITE)
    with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
        host.import_base(str(toolbox_root), "toolbox", site=site)
    yield "toolbox"
    with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as host:
        host.remove_base("toolbox")


@pytest.fixture(autouse=True)
def _nothing_left(toolbox: str, pool: Pool, cgroup_parent: str) -> Iterator[None]:
    scope = leftovers.Scope((pool.path,), cgroup_parent)
    before = leftovers.take(scope)
    yield
    deadline = time.monotonic() + SETTLING_S
    while more := leftovers.take(scope) - before - _idle_threads():
        assert time.monotonic() < deadline, f"the test left {sorted(more.elements())}"
        time.sleep(0.005)


def _idle_threads() -> Counter[str]:
    """The threads that trio keeps for later: it lets them go after ten seconds."""
    threads = (thread for thread in threading.enumerate() if "trio" in thread.name.lower())
    return Counter(f"thread {thread.native_id}" for thread in threads)


@pytest.fixture
def host(_nothing_left: None, pool: Pool, cgroup_parent: str) -> Iterator[Host]:
    """A Host of the test's own."""
    with Host(pool.path, n_networks=2, cgroup_parent=cgroup_parent) as host:
        yield host


@pytest.fixture
def instance(host: Host) -> Iterator[Instance]:
    """A running toolbox."""
    with host.launch("toolbox") as instance:
        yield instance


@pytest.fixture
def new_base(host: Host, toolbox_root: Path, tmp_path: Path) -> Iterator[NewBase]:
    """A function that imports a toolbox with another site spec and returns the base's name."""
    names: list[str] = []
    numbers = itertools.count(1)

    def make(site: str, source: Path | None = None) -> str:
        name = f"base-{next(numbers)}"
        path = tmp_path / f"{name}.toml"
        path.write_text(site)
        host.import_base(str(source or toolbox_root), name, site=path)
        names.append(name)
        return name

    yield make
    for instance in host.instances():
        instance.remove()
    for name in names:
        with suppress(FileNotFoundError):
            host.remove_base(name)
