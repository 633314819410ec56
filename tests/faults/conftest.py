"""Tests of the fault-injection build (`make faults`): they need the extension in that flavour."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helpers beside the tests

import leftovers
from injection import IS_FAULTS_BUILD

from webserv_rt.collector import end_cgroup
from webserv_rt.kernel.cgroup import CgroupHost

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if IS_FAULTS_BUILD:
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs the fault-injection build: run `make faults`"))


@pytest.fixture
def scope(tmp_path: Path) -> leftovers.Scope:
    """Look at this test's own directory and cgroups."""
    return leftovers.Scope((tmp_path,))


@pytest.fixture
def cgroups(scope: leftovers.Scope) -> Iterator[CgroupHost]:
    """The hierarchies of this host; the test's groups are gone afterwards."""
    with CgroupHost() as host:
        yield host
        end_cgroup(host, scope.cgroup)


@pytest.fixture(scope="session", autouse=True)
def _no_cgroup_left() -> Iterator[None]:
    yield
    with CgroupHost() as host:
        end_cgroup(host, leftovers.CGROUP)
