"""Worlds: several instances behind one SOCKS5 port, reset as one, each world apart from all others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import toolbox as box
from conftest import NewBase
from toolbox import get_through, sh

from webserv_rt.errors import WebservError
from webserv_rt.host import Host
from webserv_rt.strategy import NotReady
from webserv_rt.world import World


@pytest.fixture
def shop_and_forum(host: Host, new_base: NewBase) -> Iterator[tuple[str, str]]:
    """The names of two bases whose sites have two host names each."""
    names = []
    for site in ("shop", "forum"):
        text = box.SITE.replace('name = "toolbox"', f'name = "{site}"').replace(
            "toolbox.test", f"{site}.test"
        )
        names.append(new_base(text.replace("port = 80", "port = 80\nports = [80, 8080]")))
    yield names[0], names[1]


@pytest.fixture
def world(host: Host, shop_and_forum: tuple[str, str]) -> Iterator[World]:
    """A world of a shop and a forum, which answer with their own names."""
    with host.world(shop_and_forum) as world:
        for name, instance in world.items():
            sh(instance, f"echo {name} > /srv/www/name")
        yield world


def test_each_host_name_leads_to_its_own_site(world: World, shop_and_forum: tuple[str, str]) -> None:
    shop, forum = shop_and_forum
    assert list(world) == [shop, forum]
    assert len(world) == 2
    for name, host_name in ((shop, "shop.test"), (shop, "www.shop.test"), (forum, "FORUM.test")):
        assert get_through(world, host_name, "/name") == (200, f"{name}\n")
    assert world.proxy_url == f"socks5h://127.0.0.1:{world.socks_port}"


def test_second_port_of_a_site_is_reached_by_its_number(
    world: World, shop_and_forum: tuple[str, str]
) -> None:
    sh(
        world[shop_and_forum[0]],
        "mkdir /srv/other; echo other > /srv/other/name; httpd -p 8080 -h /srv/other",
    )
    assert get_through(world, "shop.test", "/name", port=8080) == (200, "other\n")


@pytest.mark.parametrize(
    ("host_name", "port"),
    [
        ("example.org", 80),
        ("shop.test", 81),
        ("shop.test", 443),
        ("127.0.0.1", 80),
        ("localhost", 80),
        ("shop.test.", 22),
    ],
)
def test_every_other_destination_is_refused_and_counted(world: World, host_name: str, port: int) -> None:
    before = world._socks.refused
    with pytest.raises(ConnectionRefusedError):
        get_through(world, host_name, port=port)
    assert world._socks.refused == before + 1


def test_worlds_of_the_same_bases_do_not_see_each_other(
    host: Host, shop_and_forum: tuple[str, str], world: World
) -> None:
    with host.world(shop_and_forum) as other:
        assert other.socks_port != world.socks_port
        for instance in other.values():
            sh(instance, "echo other > /srv/www/name")
        assert get_through(world, "shop.test", "/name") == (200, f"{shop_and_forum[0]}\n")
        assert get_through(other, "shop.test", "/name") == (200, "other\n")
        other.reset()
        assert get_through(other, "shop.test", "/name")[0] == 404
        assert get_through(world, "shop.test", "/name") == (200, f"{shop_and_forum[0]}\n")


def test_reset_puts_all_back_and_keeps_the_way_in(world: World) -> None:
    port = world.socks_port
    timings = world.reset()
    assert set(timings) == set(world)
    assert all(timing.ready_ms > 0 for timing in timings.values())
    assert world.socks_port == port
    for name in ("shop.test", "forum.test"):
        assert get_through(world, name, "/name")[0] == 404
        assert get_through(world, name) == (200, box.PAGE)


def test_failure_of_one_reset_is_raised_after_the_others_have_ended(
    world: World, shop_and_forum: tuple[str, str]
) -> None:
    shop, forum = shop_and_forum
    world[shop].remove()
    with pytest.raises(WebservError, match="is removed"):
        world.reset()
    assert world[forum].state == "ready"
    assert get_through(world, "forum.test", "/name")[0] == 404
    with pytest.raises(OSError):
        get_through(world, "shop.test")


def test_removed_world_is_gone_with_its_instances(host: Host, shop_and_forum: tuple[str, str]) -> None:
    world = host.world(shop_and_forum, name="one")
    assert {instance.name for instance in host.instances()} == {f"one/{name}" for name in shop_and_forum}
    world.remove()
    world.remove()
    assert host.instances() == []
    with pytest.raises(ConnectionRefusedError):
        get_through(world, "shop.test")
    with pytest.raises(WebservError, match="world one is removed"):
        world.reset()


def test_world_that_cannot_be_made_leaves_nothing(host: Host, toolbox: str, new_base: NewBase) -> None:
    failing = new_base('name = "failing"\nport = 80\n[[services]]\nname = "s"\ncommand = ["/bin/false"]\n')
    with pytest.raises(NotReady):
        host.world([toolbox, failing])
    twin = new_base(box.SITE)
    with pytest.raises(WebservError, match=r"two instances answer to toolbox.test:80; give them other hosts"):
        host.world([toolbox, twin])
    with pytest.raises(WebservError, match=r"there is no base nothing"):
        host.world([toolbox, "nothing"])
    with pytest.raises(WebservError, match=r"name at least one base"):
        host.world([])
    with pytest.raises(WebservError, match=r"there is an instance .* already"):
        host.world([toolbox, toolbox])
    assert host.instances() == []
    traffic = host.gateway.stats()
    assert traffic.active == traffic.parked == 0


def test_world_of_spares_is_reset_within_a_second(host: Host, shop_and_forum: tuple[str, str]) -> None:
    with host.world(shop_and_forum, strategy="standby") as world:
        for base in shop_and_forum:
            host.await_spares(base)
        for instance in world.values():
            sh(instance, "echo dirty > /srv/www/index.html")
        timings = world.reset()
        assert get_through(world, "shop.test") == get_through(world, "forum.test") == (200, box.PAGE)
        assert all(timing.ready_ms < 1000 for timing in timings.values())
