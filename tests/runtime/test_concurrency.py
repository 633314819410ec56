"""Many threads on many instances, many threads on one, and ends that come in the middle."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import pytest
import toolbox as box
from conftest import NewBase
from toolbox import get, sh

from webserv_rt.errors import WebservError
from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.storage.pool import Pool

NEVER_READY = 'name = "never"\nport = 80\n[[services]]\nname = "s"\ncommand = ["/bin/sleep", "1000"]\n[ready]\nhttp = "/"\n'


def test_many_instances_are_reset_from_many_threads(host: Host) -> None:
    instances = [host.create("toolbox") for _ in range(12)]

    def use(number: int) -> None:
        instance = instances[number]
        instance.launch()
        for round_number in range(4):
            sh(instance, f"echo {number} {round_number} > /srv/www/index.html")
            assert get(instance) == (200, f"{number} {round_number}\n")
            instance.reset()
            assert get(instance) == (200, box.PAGE)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(len(instances))))
    assert len({instance.port for instance in instances}) == len(instances)


def test_spares_are_never_given_twice(host: Host) -> None:
    instances = [host.create("toolbox", strategy="standby") for _ in range(6)]
    seen: list[str] = []

    def use(instance: Instance) -> None:
        for _ in range(4):
            instance.reset()
            seen.append(instance.incarnation.name)
            assert get(instance) == (200, box.PAGE)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(use, instances))
    assert len(set(seen)) == len(seen) == 24


def test_operations_on_one_instance_from_many_threads_exclude_each_other(host: Host) -> None:
    """Whatever comes when, each call succeeds or says why not, and the instance works afterwards."""
    instance = host.launch("toolbox")
    calls: list[Callable[[], object]] = [
        instance.reset,
        instance.changes,
        instance.statistics,
        instance.logs,
        lambda: instance.exec(["/bin/sh", "-c", "echo x > /opt/x"], timeout_s=20),
        lambda: instance.exec(["/bin/true"]),
        lambda: get(instance),
    ]
    unexpected: list[BaseException] = []
    end = time.monotonic() + 4

    def use(seed: int) -> None:
        chance = random.Random(seed)
        while time.monotonic() < end:
            try:
                chance.choice(calls)()
            except (WebservError, ConnectionError):
                pass
            except BaseException as error:
                unexpected.append(error)
                return

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(use, range(6)))
    assert unexpected == []
    instance.reset()
    assert get(instance) == (200, box.PAGE)
    assert not instance.changes()


def test_command_that_a_reset_ends_says_so(instance: Instance) -> None:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(instance.exec(["/bin/sleep", "1000"]).status)
        except WebservError as error:
            results.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    instance.reset()
    began = time.monotonic()
    instance.host.reaper.drain()
    assert time.monotonic() - began < 1, "it waited until the host's pid 1 had reaped something"
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert results == [137] * 4


def test_removal_during_a_reset_waits_for_it_and_wins(host: Host) -> None:
    for delay_s in (0, 0.002, 0.005, 0.01, 0.02, 0.05):
        instance = host.launch("toolbox")
        with ThreadPoolExecutor(2) as threads:
            reset = threads.submit(instance.reset)
            time.sleep(delay_s)
            threads.submit(instance.remove).result()
            with suppress(WebservError):
                reset.result()
        assert instance.state == "removed"
        assert host.instances() == []


def test_removal_of_an_instance_that_is_still_getting_ready_does_not_wait_for_its_time_out(
    host: Host, new_base: NewBase
) -> None:
    instance = host.create(new_base(NEVER_READY))
    with ThreadPoolExecutor(1) as threads:
        launch = threads.submit(instance.launch)
        time.sleep(0.3)
        began = time.monotonic()
        instance.remove()
        assert time.monotonic() - began < 5
        with pytest.raises(WebservError, match="removed"):
            launch.result()


@pytest.mark.parametrize("strategy", ["cold", "standby"])
def test_host_can_be_closed_while_instances_are_launched(
    pool: Pool, cgroup_parent: str, toolbox: str, strategy: str
) -> None:
    for delay_s in (0.0, 0.05, 0.2):
        host = Host(pool.path, n_networks=2, cgroup_parent=cgroup_parent)
        with ThreadPoolExecutor(4) as threads:
            launches = [threads.submit(host.launch, toolbox, strategy=strategy) for _ in range(8)]  # type: ignore[arg-type]
            time.sleep(delay_s)
            host.close()
            wait(launches)
        for launch in launches:
            error = launch.exception()
            assert error is None or isinstance(error, WebservError), repr(error)
        with pytest.raises(WebservError, match="this host is closed"):
            host.launch(toolbox)


def test_host_that_makes_spares_of_a_site_that_never_gets_ready_closes_soon(
    pool: Pool, cgroup_parent: str, new_base: NewBase
) -> None:
    base = new_base(NEVER_READY)
    for delay_s in (0, 0.02, 0.3):
        host = Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent)
        host.create(base, strategy="standby")
        time.sleep(delay_s)
        began = time.monotonic()
        host.close()
        assert time.monotonic() - began < 5


def test_two_hosts_on_one_pool_do_not_disturb_each_other(pool: Pool, cgroup_parent: str, host: Host) -> None:
    with host.launch("toolbox") as instance:
        with Host(pool.path, n_networks=1, cgroup_parent=cgroup_parent) as other:
            assert other.collected.owners == ()
            with other.launch("toolbox") as second:
                assert second.incarnation.root_id != instance.incarnation.root_id
                sh(second, "echo second > /srv/www/index.html")
                assert get(instance) == (200, box.PAGE)
            with pytest.raises(WebservError, match="toolbox is in use"):
                other.remove_base("toolbox")
        assert get(instance) == (200, box.PAGE)


def test_base_can_be_removed_and_imported_anew_under_its_name(
    host: Host, new_base: NewBase, toolbox_root: Path, tmp_path: Path
) -> None:
    name = new_base(box.SITE)
    for _ in range(2):
        with host.launch(name, strategy="standby") as instance:
            assert get(instance) == (200, box.PAGE)
        site = tmp_path / f"{name}.toml"
        host.remove_base(name)
        host.import_base(str(toolbox_root), name, site=site)
