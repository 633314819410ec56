"""The face for asyncio and trio: the same results, an event loop that never waits, cancelling that leaves nothing."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine

import anyio
import anyio.to_thread
import pytest
import toolbox as box
from conftest import NewBase

import webserv_rt
from webserv_rt import aio
from webserv_rt.command import CommandTimeout
from webserv_rt.host import Host
from webserv_rt.storage.pool import Pool

NEVER_READY = (
    'name = "never"\nport = 80\n[[services]]\nname = "s"\ncommand = ["/bin/sleep", "1000"]\n'
    '[ready]\nhttp = "/"\ntimeout_s = 50\n'
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Each test runs under both."""
    return str(request.param)


@pytest.fixture
async def async_host(
    _nothing_left: None, pool: Pool, cgroup_parent: str, anyio_backend: str
) -> AsyncIterator[aio.Host]:
    """A Host of the test's own, below the tests' control group."""
    host = aio.Host(pool.path)
    host._open.keywords.update(n_networks=2, cgroup_parent=cgroup_parent)
    async with host:
        yield host


async def page(instance: aio.Instance) -> tuple[int, str]:
    return await anyio.to_thread.run_sync(box.get, instance.sync)


async def await_no_instances(host: aio.Host) -> None:
    with anyio.fail_after(5):
        while host.sync.instances():
            await anyio.sleep(0.01)


async def test_instance_is_launched_used_reset_and_removed(async_host: aio.Host) -> None:
    async with await async_host.launch("toolbox", name="one") as instance:
        assert (instance.name, instance.state) == ("one", "ready")
        assert await page(instance) == (200, box.PAGE)
        result = await instance.exec(["/bin/sh", "-c", "cat; echo x > /opt/x"], stdin=b"in", user="root")
        assert (result.status, result.stdout) == (0, b"in")
        assert (await instance.changes()).added == ("/opt/x",)
        assert (await instance.statistics()).n_processes >= 2
        assert await instance.logs("init") == ""
        timing = await instance.reset()
        assert timing == instance.timing
        assert not await instance.changes()
        await instance.stop()
        assert instance.state == "stopped"
        await instance.start()
        await instance.wait_ready()
        assert await page(instance) == (200, box.PAGE)
    assert instance.state == "removed"


async def test_errors_are_those_of_the_synchronous_face(async_host: aio.Host) -> None:
    with pytest.raises(webserv_rt.WebservError, match="there is no base nothing"):
        await async_host.launch("nothing")
    async with await async_host.create("toolbox") as instance:
        with pytest.raises(webserv_rt.WebservError, match="start or reset it first"):
            await instance.changes()
        await instance.launch()
        with pytest.raises(CommandTimeout):
            await instance.exec(["/bin/sleep", "1000"], timeout_s=0.2)


async def test_many_are_launched_and_reset_at_once_while_the_loop_goes_on(async_host: aio.Host) -> None:
    longest_pause_s = 0.0

    async def tick() -> None:
        nonlocal longest_pause_s
        while True:
            began = time.monotonic()
            await anyio.sleep(0.005)
            longest_pause_s = max(longest_pause_s, time.monotonic() - began)

    async def use() -> None:
        async with await async_host.launch("toolbox") as instance:
            await instance.exec(["/bin/sleep", "0.2"])
            await instance.reset()

    async with anyio.create_task_group() as ticking:
        ticking.start_soon(tick)
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(use)
        ticking.cancel_scope.cancel()
    assert async_host.sync.instances() == []
    assert longest_pause_s < 1


async def test_world_has_the_face_of_an_instance_for_each_base(async_host: aio.Host) -> None:
    async with await async_host.world(["toolbox"], name="w") as world:
        assert (world.name, list(world), len(world)) == ("w", ["toolbox"], 1)
        assert world.proxy_url.endswith(str(world.socks_port))
        assert set(await world.reset()) == {"toolbox"}
        assert await page(world["toolbox"]) == (200, box.PAGE)
    await await_no_instances(async_host)


async def test_cancelled_launch_leaves_nothing_and_does_not_wait_for_the_site(
    new_base: NewBase, async_host: aio.Host
) -> None:
    base = new_base(NEVER_READY)
    for delay_s in (0.0, 0.005, 0.3):
        began = time.monotonic()
        with anyio.move_on_after(delay_s) as scope:
            await async_host.launch(base)
        assert scope.cancelled_caught
        assert time.monotonic() - began < 5
        assert async_host.sync.instances() == []


async def test_launch_cancelled_at_any_time_leaves_nothing(async_host: aio.Host) -> None:
    for step in range(15):
        with anyio.move_on_after(step * 0.004):
            async with await async_host.launch("toolbox") as instance:
                await instance.reset()
    await await_no_instances(async_host)


async def test_cancelled_command_is_killed(async_host: aio.Host) -> None:
    async with await async_host.launch("toolbox") as instance:
        began = time.monotonic()
        with anyio.move_on_after(0.2):
            await instance.exec(["/bin/sh", "-c", "(setsid sleep 777 &); sleep 777"])
        assert time.monotonic() - began < 3
        with anyio.fail_after(5):
            while b"777" in (await instance.exec(["/bin/ps"])).stdout:
                await anyio.sleep(0.01)


async def test_hanging_commands_do_not_keep_a_removal_from_its_turn(async_host: aio.Host) -> None:
    instance = await async_host.launch("toolbox")

    async def hang() -> None:
        assert (await instance.exec(["/bin/sleep", "1000"])).status == 137

    async with anyio.create_task_group() as group:
        for _ in range(45):
            group.start_soon(hang)
        await anyio.sleep(1)
        with anyio.fail_after(20):
            await instance.remove()


async def test_reset_that_is_cancelled_goes_on_to_its_end(async_host: aio.Host) -> None:
    async with await async_host.launch("toolbox") as instance:
        await instance.exec(["/bin/sh", "-c", "echo x > /opt/x"])
        with anyio.move_on_after(0.001):
            await instance.reset()
        assert not await instance.changes()
        assert instance.state == "ready"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("what", ["launch", "launch of one that never gets ready", "world", "create"])
async def test_task_cancelled_by_asyncio_itself_leaves_nothing_either(
    new_base: NewBase, async_host: aio.Host, what: str
) -> None:
    """asyncio's own cancel pays no heed to anyio's shields."""
    never_ready = new_base(NEVER_READY)
    for delay_s in (0.0, 0.002, 0.01, 0.02, 0.2):
        ways: dict[str, Callable[[], Coroutine[None, None, aio.Instance | aio.World]]] = {
            "launch": lambda: async_host.launch("toolbox"),
            "launch of one that never gets ready": lambda: async_host.launch(never_ready),
            "world": lambda: async_host.world(["toolbox"]),
            "create": lambda: async_host.create("toolbox"),
        }
        task = asyncio.create_task(ways[what]())
        await asyncio.sleep(delay_s)
        if not task.cancel():
            await (await task).remove()
            continue
        with pytest.raises(asyncio.CancelledError):
            await task
    await await_no_instances(async_host)


async def test_host_left_by_an_error_is_closed(
    _nothing_left: None, pool: Pool, cgroup_parent: str, anyio_backend: str
) -> None:
    host = aio.Host(pool.path)
    host._open.keywords.update(n_networks=1, cgroup_parent=cgroup_parent)
    with pytest.raises(http.client.HTTPException):
        async with host:
            await host.launch("toolbox")
            raise http.client.HTTPException
    assert host.sync.instances() == []


@pytest.mark.parametrize(
    ("synchronous", "asynchronous", "left_out"),
    [
        (webserv_rt.Instance, aio.Instance, {"incarnation", "root"}),
        (webserv_rt.World, aio.World, set()),
        (
            Host,
            aio.Host,
            {
                "base",
                "instances",
                "remove_base",
                "await_spares",
                "forget",
                "forget_world",
                "is_forked",
                "close",
            },
        ),
    ],
)
def test_every_public_method_is_there(synchronous: type, asynchronous: type, left_out: set[str]) -> None:
    def names(of: type) -> set[str]:
        return {
            name for name, member in inspect.getmembers(of) if not name.startswith("_") and member is not None
        }

    assert names(synchronous) - names(asynchronous) == left_out
