"""A pool without room: a clear error, no harm to those that run, and room again once the hog is reset."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import toolbox as box
from toolbox import get, sh

from webserv_rt.errors import WebservError
from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.storage.errors import PoolFull
from webserv_rt.storage.pool import Pool

POOL_BYTES = 512 << 20


@pytest.fixture
def small_host(tmp_path: Path, cgroup_parent: str, toolbox_root: Path) -> Iterator[Host]:
    """A Host on a pool of its own that one instance can fill."""
    site = tmp_path / "site.toml"
    # Where the kernel has quotas, this profile's is larger than the pool.
    site.write_text(box.SITE.replace('profile = "tiny"', 'profile = "jvm"'))
    pool = Pool.create(tmp_path / "pool", size_bytes=POOL_BYTES)
    try:
        with Host(pool.path, n_networks=2, cgroup_parent=cgroup_parent) as host:
            host.import_base(str(toolbox_root), "toolbox", site=site)
            yield host
    finally:
        pool.destroy()


def fill(instance: Instance, path: str = "/opt/fill") -> None:
    result = instance.exec(["dd", "if=/dev/zero", f"of={path}", "bs=1M"], timeout_s=120)
    assert result.status != 0
    assert b"No space left" in result.stderr
    with suppress(WebservError):
        instance.exec(["/bin/sh", "-c", f"i=0; while echo > {path}-$i; do i=$((i + 1)); done"], timeout_s=60)


@pytest.mark.parametrize("path", ["/opt/fill", "/var/lib/store/fill"])
def test_hog_fills_the_pool_harms_nobody_and_gives_the_room_back_when_it_is_reset(
    small_host: Host, path: str
) -> None:
    with small_host.launch("toolbox") as hog, small_host.launch("toolbox") as other:
        sh(other, "echo mine > /srv/www/index.html")
        free = small_host.pool.status().free_bytes
        fill(hog, path)
        assert get(other) == (200, "mine\n")
        with pytest.raises(PoolFull, match=r"the pool is full: an instance needs 1\.0 MiB"):
            small_host.launch("toolbox")
        assert {instance.name for instance in small_host.instances()} == {hog.name, other.name}
        assert other.changes().modified == ("/srv/www/index.html",)
        hog.reset()
        small_host.reaper.drain()
        assert get(hog) == (200, box.PAGE)
        assert get(other) == (200, "mine\n")
        assert small_host.pool.status().free_bytes > free - (8 << 20)
        with small_host.launch("toolbox") as third:
            assert get(third) == (200, box.PAGE)
    small_host.base("toolbox").verify()


def test_reset_of_another_instance_in_a_full_pool_works_or_says_that_the_pool_is_full(
    small_host: Host,
) -> None:
    with small_host.launch("toolbox") as hog, small_host.launch("toolbox") as other:
        fill(hog)
        fill_last_blocks(small_host)
        for _ in range(3):
            try:
                other.reset()
                assert get(other) == (200, box.PAGE)
            except PoolFull:
                assert other.state == "failed"
        (small_host.pool.path / "ballast").unlink(missing_ok=True)
        hog.reset()
        small_host.reaper.drain()
        other.reset()
        assert get(other) == (200, box.PAGE)
        assert get(hog) == (200, box.PAGE)


def fill_last_blocks(host: Host) -> None:
    """Take what the file system keeps for root, too."""
    try:
        fd = os.open(host.pool.path / "ballast", os.O_WRONLY | os.O_CREAT)
    except OSError:
        return
    try:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    os.write(fd, b"x" * size)
                    os.fsync(fd)
    finally:
        os.close(fd)


def test_full_pool_gives_spares_no_room_and_standby_says_so(small_host: Host) -> None:
    with small_host.launch("toolbox") as hog:
        fill(hog)
        fill_last_blocks(small_host)
        with pytest.raises(WebservError, match="pool is full"):
            small_host.launch("toolbox", strategy="standby")
        (small_host.pool.path / "ballast").unlink(missing_ok=True)
        hog.reset()
        small_host.reaper.drain()
        with small_host.launch("toolbox", strategy="standby") as instance:
            assert get(instance) == (200, box.PAGE)


def test_import_into_a_full_pool_is_refused_and_leaves_nothing(small_host: Host, toolbox_root: Path) -> None:
    with small_host.launch("toolbox") as hog:
        fill(hog)
        with pytest.raises(PoolFull):
            small_host.import_base(str(toolbox_root), "second")
        assert [base.name for base in small_host.bases()] == ["toolbox"]
        assert get(hog) == (200, box.PAGE)


def test_many_that_fill_the_pool_at_once_are_all_reset(small_host: Host) -> None:
    hogs = [small_host.launch("toolbox") for _ in range(3)]
    threads = [threading.Thread(target=fill, args=(hog,)) for hog in hogs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for hog in hogs:
        with suppress(PoolFull):
            hog.reset()
    small_host.reaper.drain()
    for hog in hogs:
        hog.reset()
        assert get(hog) == (200, box.PAGE)


def test_grown_pool_has_room_again(small_host: Host) -> None:
    with small_host.launch("toolbox") as hog:
        fill(hog)
        with pytest.raises(PoolFull):
            small_host.launch("toolbox")
        small_host.pool.grow(POOL_BYTES * 2)
        with small_host.launch("toolbox") as second:
            assert get(second) == (200, box.PAGE)
