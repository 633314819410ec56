"""Every native call made to fail under each operation of the runtime.

The operation succeeds all the same, or it raises a clear error; the instance is then gone or can be reset,
and closing the Host leaves nothing.
"""

from __future__ import annotations

import errno
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import small_site
from injection import DIE, FAIL, HOST, INIT, Fault, Place, sweep
from leftovers import CGROUP, Scope

from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.storage.pool import Pool
from webserv_rt.world import World

WAYS = pytest.mark.parametrize(
    ("place", "action", "code"),
    [
        pytest.param(HOST, FAIL, 0, id="host"),
        pytest.param(HOST, FAIL, errno.EINTR, id="host-interrupted"),
        pytest.param(INIT, FAIL, 0, id="init"),
        pytest.param(INIT, DIE, 0, id="init-dies"),
    ],
)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def base(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The small site in the pool."""
    root, spec = small_site.make(tmp_path_factory.mktemp("small"))
    with Host(pool.path, n_networks=1, cgroup_parent=CGROUP) as host:
        host.import_base(str(root), small_site.NAME, site=spec)
    yield small_site.NAME
    with Host(pool.path, n_networks=1, cgroup_parent=CGROUP) as host:
        host.remove_base(small_site.NAME)


@pytest.fixture
def scope(pool: Pool, base: str) -> Scope:
    """Look at the whole pool."""
    return Scope((pool.path,))


class Stage:
    """A Host, and an instance where one is wanted, for one operation."""

    def __init__(self, pool: Path) -> None:
        self._pool = pool
        self.host: Host
        self.instance: Instance

    def open(self) -> None:
        self.host = Host(self._pool, n_networks=1, cgroup_parent=CGROUP)

    def open_with_instance(self) -> None:
        self.open()
        self.instance = self.host.launch(small_site.NAME)

    def open_with_standby(self) -> None:
        self.open()
        self.instance = self.host.launch(small_site.NAME, strategy="standby")
        self.host.await_spares(small_site.NAME)

    def close(self) -> None:
        self.host.close()

    def check_and_close(self, _: object = None) -> None:
        """The instance has to be there, or to come back by a reset, whatever happened to it."""
        if self.instance.state != "ready":
            self.instance.reset()
        with urllib.request.urlopen(self.instance.url, timeout=5) as answer:
            assert answer.read().decode() == small_site.PAGE
        self.host.close()


@pytest.fixture
def stage(pool: Pool, base: str) -> Stage:
    return Stage(pool.path)


@pytest.mark.parametrize("code", [0, errno.EINTR])
def test_opening_a_host(scope: Scope, pool: Pool, code: int) -> None:
    faults = sweep(
        lambda: Host(pool.path, n_networks=1, cgroup_parent=CGROUP), scope=scope, undo=Host.close, code=code
    )
    require_failures(faults, code, at_least=5)


@WAYS
def test_launch_leaves_nothing_of_an_instance_that_fails(
    scope: Scope, stage: Stage, place: Place, action: int, code: int
) -> None:
    def check(instance: Instance) -> None:
        assert instance.state == "ready"

    faults = sweep(
        lambda: stage.host.launch(small_site.NAME),
        scope=scope,
        prepare=stage.open,
        undo=check,
        clean_up=stage.close,
        place=place,
        action=action,
        code=code,
    )
    require_failures(faults, code, at_least=20)


@WAYS
@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda instance: instance.reset(), id="reset"),
        pytest.param(lambda instance: instance.exec(["/bin/busybox", "true"]), id="exec"),
    ],
)
def test_instance_can_be_reset_whatever_failed(
    scope: Scope,
    stage: Stage,
    act: Callable[[Instance], object],
    place: Place,
    action: int,
    code: int,
) -> None:
    sweep(
        lambda: act(stage.instance),
        scope=scope,
        prepare=stage.open_with_instance,
        clean_up=stage.check_and_close,
        place=place,
        action=action,
        code=code,
    )


@pytest.mark.parametrize("code", [0, errno.EINTR])
@pytest.mark.parametrize("name", ["stop", "changes", "statistics"])
def test_instance_that_is_looked_at_or_stopped_can_be_reset(
    scope: Scope, stage: Stage, name: str, code: int
) -> None:
    sweep(
        lambda: getattr(stage.instance, name)(),
        scope=scope,
        prepare=stage.open_with_instance,
        clean_up=stage.check_and_close,
        code=code,
    )


@pytest.mark.parametrize("code", [0, errno.EINTR])
def test_removal_of_an_instance(scope: Scope, stage: Stage, code: int) -> None:
    sweep(
        lambda: stage.instance.remove(),
        scope=scope,
        prepare=stage.open_with_instance,
        clean_up=stage.close,
        code=code,
    )


@pytest.mark.parametrize("code", [0, errno.EINTR])
def test_what_a_host_cannot_remove_is_for_the_next(scope: Scope, stage: Stage, code: int) -> None:
    def collect() -> None:
        stage.open()
        stage.close()

    sweep(
        lambda: stage.host.close(),
        scope=scope,
        prepare=stage.open_with_instance,
        clean_up=collect,
        code=code,
    )


@pytest.mark.parametrize("code", [0, errno.EINTR])
def test_reset_by_a_spare(scope: Scope, stage: Stage, code: int) -> None:
    sweep(
        lambda: stage.instance.reset(),
        scope=scope,
        prepare=stage.open_with_standby,
        clean_up=stage.check_and_close,
        code=code,
    )


@pytest.mark.parametrize("code", [0, errno.EINTR])
def test_launch_of_a_world_leaves_nothing_of_one_that_fails(scope: Scope, stage: Stage, code: int) -> None:
    def check(world: World) -> None:
        assert [instance.state for instance in world.values()] == ["ready"]

    sweep(
        lambda: stage.host.world([small_site.NAME]),
        scope=scope,
        prepare=stage.open,
        undo=check,
        clean_up=stage.close,
        code=code,
    )


@pytest.mark.parametrize("code", [0, errno.EINTR])
def test_import_is_whole_or_not_there(scope: Scope, stage: Stage, tmp_path: Path, code: int) -> None:
    root, spec = small_site.make(tmp_path)

    def import_it() -> None:
        stage.host.import_base(str(root), "imported", site=spec)

    def check_and_remove(_: None) -> None:
        stage.host.base("imported").verify()
        stage.host.remove_base("imported")

    sweep(import_it, scope=scope, prepare=stage.open, undo=check_and_remove, clean_up=stage.close, code=code)


def require_failures(faults: list[Fault], code: int, at_least: int) -> None:
    """Fail when hardly any call made the operation fail: the sweep would have tested nothing."""
    if code != errno.EINTR:
        n_failures = sum(fault.error is not None for fault in faults)
        assert n_failures >= at_least, f"only {n_failures} of {len(faults)} faults made it fail"
