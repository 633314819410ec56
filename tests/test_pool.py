"""Pools: made, opened, grown and destroyed; never half; full without damage."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from webserv_rt.kernel import loop
from webserv_rt.kernel.error import KernelError
from webserv_rt.kernel.filesystem import can_share_blocks
from webserv_rt.kernel.quota import set_project_quota
from webserv_rt.storage.errors import PoolFull
from webserv_rt.storage.pool import PARTS, Pool
from webserv_rt.storage.pool_errors import (
    PoolDamaged,
    PoolExists,
    PoolInUse,
    PoolNotFound,
    PoolSizeRefused,
    PoolVersionUnsupported,
)

MIB = 1 << 20
SIZE = 320 * MIB


@pytest.fixture
def place(memory_directory: Path) -> Path:
    """Where a pool has to be an image."""
    subprocess.run(["mount", "-o", "remount,size=2g", str(memory_directory)], check=True)
    return memory_directory / "pool"


@pytest.fixture
def made(place: Path) -> Iterator[Pool]:
    pool = Pool.create(place, size_bytes=SIZE)
    yield pool
    pool.close()
    if place.with_name("pool.img").exists():
        Pool.open(place).destroy()


def loop_devices(directory: Path) -> list[str]:
    """Return the loop devices whose file is in DIRECTORY: others come and go."""
    backing_files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [path.parts[3] for path in backing_files if path.read_text().startswith(f"{directory}/")]


def is_mounted(path: Path) -> bool:
    return path.is_mount()


def run_python(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# -- images --------------------------------------------------------------------------------------------


def test_pool_is_an_image_where_the_filesystem_cannot_share(made: Pool) -> None:
    status = made.status()
    assert not can_share_blocks(made.path.parent)
    assert can_share_blocks(made.path)
    assert (status.filesystem, status.image) == ("xfs", made.path.with_name("pool.img"))
    assert 0.8 * SIZE < status.size_bytes + 64 * MIB <= SIZE + 64 * MIB
    assert status.used_bytes + status.free_bytes < status.size_bytes
    assert {entry.name for entry in made.path.iterdir()} == {*PARTS, "pool.json"}


def test_pool_is_closed_to_all_but_root(made: Pool) -> None:
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.path.with_name("pool.img").stat().st_mode) == 0o600


def test_image_takes_only_what_the_pool_holds_and_gives_it_back(made: Pool) -> None:
    image = made.path.with_name("pool.img")

    def taken() -> int:
        os.sync()
        return image.stat().st_blocks * 512

    empty = taken()
    assert empty < 80 * MIB
    (made.path / "builds" / "file").write_bytes(os.urandom(100 * MIB))
    assert taken() > empty + 95 * MIB
    (made.path / "builds" / "file").unlink()
    deadline = threading.Event()
    for _ in range(100):
        if taken() < empty + 10 * MIB:
            break
        deadline.wait(0.1)
    assert taken() < empty + 10 * MIB


def test_pool_is_remounted_when_it_was_unmounted(made: Pool) -> None:
    (made.path / "bases" / "mark").write_bytes(b"x")
    identity = made.uuid
    made.close()
    subprocess.run(["umount", str(made.path)], check=True)
    assert not (made.path / "pool.json").exists()
    with Pool.open(made.path) as pool:
        assert pool.uuid == identity
        assert (pool.path / "bases" / "mark").read_bytes() == b"x"
        assert "noatime" in Path("/proc/self/mountinfo").read_text()


def test_pool_may_be_named_by_a_relative_path_or_through_a_symlink(
    made: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(made.path.parent)
    (tmp_path / "elsewhere").symlink_to(made.path.parent)
    for path in (Path("pool"), tmp_path / "elsewhere" / "pool"):
        with Pool.open(path) as pool:
            assert pool.path == made.path


def test_opening_by_many_processes_at_once_mounts_the_image_once(made: Pool) -> None:
    made.close()
    subprocess.run(["umount", str(made.path)], check=True)
    script = "import sys; from pathlib import Path; from webserv_rt.storage.pool import Pool;"
    script += "print(Pool.open(Path(sys.argv[1])).uuid)"
    processes = [run_python(script, str(made.path)) for _ in range(8)]
    results = [(process.communicate(), process.returncode) for process in processes]
    assert results == [((f"{made.uuid}\n", ""), 0)] * 8
    assert len(loop_devices(made.path.parent)) == 1
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {made.path} " in line]
    assert len(mounts) == 1


def test_pool_grows_while_in_use(made: Pool) -> None:
    with made.new_owner() as owner, (owner.path / "file").open("wb") as file:
        file.write(b"before")
        made.grow(2 * SIZE)
        file.write(b"after")
        file.flush()
        assert (owner.path / "file").read_bytes() == b"beforeafter"
        assert made.status().size_bytes > 1.7 * SIZE
        (owner.path / "large").write_bytes(bytes(SIZE))


def test_interrupted_growth_is_completed_by_another(made: Pool) -> None:
    os.truncate(made.path.with_name("pool.img"), 2 * SIZE)
    assert made.status().size_bytes < 1.1 * SIZE
    made.grow(2 * SIZE)
    assert made.status().size_bytes > 1.7 * SIZE


def test_pool_does_not_shrink(made: Pool) -> None:
    with pytest.raises(PoolSizeRefused, match=r"320\.0 MiB cannot shrink to 319\.0 MiB"):
        made.grow(SIZE - MIB)
    assert made.path.with_name("pool.img").stat().st_size == SIZE


@pytest.mark.parametrize(("size_bytes", "reason"), [(299 * MIB, "too small"), (1 << 50, "does not fit")])
def test_size_that_cannot_be_is_refused_before_anything_is_made(
    place: Path, size_bytes: int, reason: str
) -> None:
    with pytest.raises(PoolSizeRefused, match=reason):
        Pool.create(place, size_bytes=size_bytes)
    assert list(place.parent.iterdir()) == []


def test_growing_beyond_what_the_host_has_is_refused(made: Pool) -> None:
    with pytest.raises(PoolSizeRefused, match="does not fit"):
        made.grow(1 << 50)
    assert made.path.with_name("pool.img").stat().st_size == SIZE


# -- destruction ---------------------------------------------------------------------------------------


def test_destroyed_pool_leaves_nothing(place: Path) -> None:
    pool = Pool.create(place, size_bytes=SIZE)
    (place / "bases" / "some").mkdir()
    assert len(loop_devices(place.parent)) == 1
    pool.destroy()
    assert loop_devices(place.parent) == []
    assert list(place.parent.iterdir()) == []


def test_pool_with_a_living_owner_is_not_destroyed(made: Pool) -> None:
    with made.new_owner() as owner:
        (owner.path / "precious").write_bytes(b"x")
        with pytest.raises(PoolInUse, match=rf"used by the processes \[{os.getpid()}\]"):
            made.destroy()
        assert (owner.path / "precious").read_bytes() == b"x"
    made.status()


def test_pool_with_a_dead_owner_is_not_destroyed_before_it_is_collected(made: Pool) -> None:
    made.new_owner().close()
    with pytest.raises(PoolInUse, match="webserv-rt gc"):
        made.destroy()
    for owner in made.dead_owners():
        owner.remove()
    made.destroy()


def test_pool_that_another_process_has_open_is_not_destroyed(made: Pool) -> None:
    with Pool.open(made.path) as other:
        with pytest.raises(PoolInUse, match="busy"):
            made.destroy()
        assert other.status().filesystem == "xfs"
    assert made.path.with_name("pool.img").exists()


def in_private_namespace(command: str) -> subprocess.Popen[bytes]:
    """Start COMMAND in a mount namespace that has its own copy of every mount."""
    script = f"{command}; echo; exec sleep 60"
    process = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_copy_of_the_mount_in_another_namespace_does_not_keep_the_pool(made: Pool) -> None:
    with in_private_namespace("true") as bystander:
        made.destroy()
        assert loop_devices(made.path.parent) == []
        assert bystander.poll() is None
        bystander.kill()
    assert not made.path.exists()


def test_pool_used_in_another_mount_namespace_is_not_destroyed(
    made: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webserv_rt.storage.pool_image._RELEASE_TIMEOUT_S", 0.3)
    with in_private_namespace(f"cd {made.path}") as user:
        with pytest.raises(PoolInUse, match=rf"mount namespaces of the processes \[{user.pid}\]"):
            made.destroy()
        assert is_mounted(made.path)
        user.kill()
    Pool.open(made.path).destroy()
    assert not made.path.exists()


# -- what is no pool -----------------------------------------------------------------------------------


def test_path_without_a_pool_is_named(tmp_path: Path) -> None:
    with pytest.raises(PoolNotFound, match=r"no pool at .*/nothing .*webserv-rt pool create"):
        Pool.open(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_pool_whose_image_is_gone_is_named(made: Pool) -> None:
    image = made.path.with_name("pool.img")
    made.close()
    subprocess.run(["umount", str(made.path)], check=True)
    image.rename(image.with_name("moved"))
    with pytest.raises(PoolNotFound, match=r"no image pool\.img beside it"):
        Pool.open(made.path)
    image.with_name("moved").rename(image)
    Pool.open(made.path).close()


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ('{"format": 2, "uuid": "u", "created": "c"}', PoolVersionUnsupported, "has format 2, .* reads 1"),
        ('{"format": 1}', PoolDamaged, "uuid"),
        ('{"uuid": "u"}', PoolDamaged, "format"),
        ("[]", PoolDamaged, "pool.json"),
        ("", PoolDamaged, "pool.json"),
        ("\x00\x01", PoolDamaged, "pool.json"),
    ],
)
def test_pool_of_another_version_or_damaged_is_refused(
    made: Pool, text: str, error: type[Exception], reason: str
) -> None:
    original = (made.path / "pool.json").read_text()
    (made.path / "pool.json").write_text(text)
    with pytest.raises(error, match=reason):
        Pool.open(made.path)
    made.close()
    subprocess.run(["umount", str(made.path)], check=True)
    with pytest.raises(error, match=reason):
        Pool.open(made.path)
    assert not is_mounted(made.path)  # a mount made for nothing is undone
    subprocess.run(["mount", "-o", "loop", str(made.path.with_name("pool.img")), str(made.path)], check=True)
    (made.path / "pool.json").write_text(original)


def test_image_that_holds_no_pool_is_refused_and_not_left_mounted(place: Path) -> None:
    image = place.with_name("pool.img")
    with image.open("wb") as file:
        file.truncate(SIZE)
    with pytest.raises(loop.ToolFailed, match="mount"):
        Pool.open(place)
    subprocess.run(["mkfs.xfs", "-q", str(image)], check=True)
    with pytest.raises(PoolNotFound):
        Pool.open(place)
    assert not is_mounted(place)
    assert loop_devices(place.parent) == []


def test_creation_where_something_is_refused_and_leaves_it(place: Path, made: Pool) -> None:
    with pytest.raises(PoolExists, match="belongs to a pool"):
        Pool.create(place, size_bytes=SIZE)
    other = place.with_name("other")
    other.mkdir()
    (other / "precious").write_bytes(b"x")
    with pytest.raises(PoolExists, match=r"not empty \(precious\)"):
        Pool.create(other, size_bytes=SIZE)
    with pytest.raises(PoolExists, match="no directory"):
        Pool.create(other / "precious", size_bytes=SIZE)
    assert (other / "precious").read_bytes() == b"x"


def test_missing_tool_is_named_with_its_package(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_SEARCH_PATH", "/nonexistent")
    with pytest.raises(
        loop.ToolFailed, match=r"mkfs\.xfs is not there: install it \(Debian package xfsprogs\)"
    ):
        Pool.create(place, size_bytes=SIZE)
    assert list(place.parent.iterdir()) == []


def test_failed_mount_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(image: Path, target: Path) -> None:
        raise loop.ToolFailed("mount: refused")

    monkeypatch.setattr(loop, "mount_xfs", refuse)
    with pytest.raises(loop.ToolFailed, match="refused"):
        Pool.create(place, size_bytes=SIZE)
    assert list(place.parent.iterdir()) == []


def test_only_one_of_many_creators_wins(place: Path) -> None:
    script = """
import sys
from pathlib import Path
from webserv_rt.storage.pool import Pool
from webserv_rt.storage.pool_errors import PoolExists
try:
    print(Pool.create(Path(sys.argv[1]), size_bytes=int(sys.argv[2])).uuid)
except PoolExists:
    print("exists")
"""
    processes = [run_python(script, str(place), str(SIZE)) for _ in range(5)]
    results = [process.communicate() for process in processes]
    assert [err for _, err in results] == [""] * 5
    created = [out for out, _ in results if out != "exists\n"]
    with Pool.open(place) as pool:
        assert created == [f"{pool.uuid}\n"]
    pool = Pool.open(place)
    pool.destroy()
    assert list(place.parent.iterdir()) == []


# -- plain directories ---------------------------------------------------------------------------------


def test_pool_is_a_plain_directory_where_the_filesystem_shares(reflink_directory: Path) -> None:
    pool = Pool.create(reflink_directory / "pool")
    status = pool.status()
    assert (status.image, status.filesystem) == (None, reflink_directory.parent.name)
    assert stat.S_IMODE(pool.path.stat().st_mode) == 0o700
    assert loop_devices(pool.path.parent) == []
    with pytest.raises(PoolSizeRefused, match="grow that"):
        pool.grow(1 << 40)
    with Pool.open(reflink_directory / "pool") as again:
        assert again.uuid == pool.uuid
    (pool.path / "bases" / "some").mkdir()
    pool.destroy()
    assert list(reflink_directory.iterdir()) == []


def test_mount_point_itself_may_become_a_pool(small_xfs: Path) -> None:
    pool = Pool.create(small_xfs)
    assert pool.status().image is None
    pool.destroy()
    assert list(small_xfs.iterdir()) == []


def test_plain_pool_with_a_living_owner_is_not_destroyed(reflink_directory: Path) -> None:
    pool = Pool.create(reflink_directory / "pool")
    with pool.new_owner() as owner:
        (pool.path / "bases" / "some").mkdir()
        with pytest.raises(PoolInUse):
            pool.destroy()
        assert owner.path.exists()
        assert (pool.path / "bases" / "some").exists()
    pool.destroy()


# -- a full pool ---------------------------------------------------------------------------------------


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def test_full_pool_says_so_and_loses_nothing(made: Pool) -> None:
    with made.new_owner() as owner:
        kept = os.urandom(5 * MIB)
        (owner.path / "kept").write_bytes(kept)
        made.require_free()
        fill(owner.path / "filler")
        with pytest.raises(PoolFull, match=r"an instance needs .* webserv-rt gc.* grow it") as caught:
            made.require_free()
        assert (caught.value.needed, made.status().free_bytes) == (MIB, 0)
        with pytest.raises(PoolFull, match=r"base shop needs 1.0 GiB"):
            made.require_free(1 << 30, "base shop")
        subprocess.run(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"], check=True)
        assert (owner.path / "kept").read_bytes() == kept
        # Cleaning up and starting a Host work on a full pool: they are how it is emptied.
        Pool.open(made.path).close()
        (owner.path / "filler").unlink()
        for _ in range(100):
            if made.status().free_bytes > 100 * MIB:
                break
            os.sync()
        made.require_free(100 * MIB, "something")
        assert (owner.path / "kept").read_bytes() == kept


def test_owner_is_removed_from_a_full_pool(made: Pool) -> None:
    with made.new_owner() as owner:
        for number in range(50):
            (owner.path / f"{number}").mkdir()
        fill(owner.path / "filler")
    assert list((made.path / "owners").iterdir()) == []


def test_full_pool_grows(made: Pool) -> None:
    with made.new_owner() as owner:
        fill(owner.path / "filler")
        made.grow(2 * SIZE)
        made.require_free(200 * MIB)
        (owner.path / "more").write_bytes(bytes(100 * MIB))


def test_room_that_the_host_lacks_is_not_promised(made: Pool) -> None:
    host = os.statvfs(made.path.parent)
    filler = made.path.parent / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, host.f_bavail * host.f_frsize - 40 * MIB)
    with pytest.raises(PoolFull):
        made.require_free(100 * MIB)
    assert made.status().free_bytes <= 40 * MIB
    filler.unlink()
    made.require_free(100 * MIB)


# -- quotas --------------------------------------------------------------------------------------------


def test_project_quota_limits_a_directory_or_is_reported_missing(made: Pool) -> None:
    directory = made.path / "builds" / "limited"
    directory.mkdir()
    fd = os.open(directory, os.O_RDONLY)
    try:
        if not made.status().has_project_quota:
            with pytest.raises(KernelError, match=r"^set project quota on project 7: "):
                set_project_quota(fd, 7, 10 * MIB)
            return
        set_project_quota(fd, 7, 10 * MIB)
        with pytest.raises(OSError, match=r"space|quota"):
            (directory / "file").write_bytes(bytes(20 * MIB))
        (directory / "file").unlink()
        with pytest.raises(OSError, match=r"space|quota"):
            for number in range(4000):
                (directory / str(number)).touch()
        assert 2500 < len(list(directory.iterdir())) <= 2560
        (made.path / "builds" / "unlimited").write_bytes(bytes(20 * MIB))
    finally:
        os.close(fd)


# -- killed at every step ------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from webserv_rt.storage.pool import Pool

path, n_steps = Path(sys.argv[1]), int(sys.argv[2])
STEPS = ("open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.truncate", "os.listdir",
         "fcntl.flock", "subprocess.Popen", "os.chmod")

def prepare():
    %(prepare)s

def act(pool):
    %(act)s

def count(event, arguments):
    global n_steps
    if armed and event in STEPS:
        n_steps -= 1
        if n_steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)

armed = False
sys.addaudithook(count)
pool = prepare()
armed = True
act(pool)
armed = False
print("done")
"""


def killed_after(script: str, path: Path, n_steps: int) -> bool:
    """Run SCRIPT, killing it before step N_STEPS; return False once it has fewer steps than that."""
    process = run_python(script, str(path), str(n_steps))
    out, err = process.communicate()
    if process.returncode == 0:
        assert out == "done\n"
        return False
    assert process.returncode == -signal.SIGKILL, err
    return True


def test_creation_killed_at_any_step_leaves_a_pool_or_room_for_one(place: Path) -> None:
    script = KILLED % {"prepare": "pass", "act": f"Pool.create(path, size_bytes={SIZE}).close()"}
    n_steps = 0
    while killed_after(script, place, n_steps):
        n_steps += 1
        try:
            pool = Pool.open(place)
        except PoolNotFound:
            pool = Pool.create(place, size_bytes=SIZE)
        pool.destroy()
        assert loop_devices(place.parent) == []
        assert list(place.parent.iterdir()) == []
    Pool.open(place).destroy()
    assert n_steps > 10


def test_plain_creation_killed_at_any_step_leaves_a_pool_or_room_for_one(small_xfs: Path) -> None:
    script = KILLED % {"prepare": "pass", "act": "Pool.create(path).close()"}
    place = small_xfs / "pool"
    n_steps = 0
    while killed_after(script, place, n_steps):
        n_steps += 1
        try:
            pool = Pool.open(place)
        except PoolNotFound:
            pool = Pool.create(place)
        pool.destroy()
        assert list(small_xfs.iterdir()) == []
    Pool.open(place).destroy()
    assert n_steps > 5


def test_destruction_killed_at_any_step_can_be_repeated(place: Path) -> None:
    script = KILLED % {"prepare": "return Pool.open(path)", "act": "pool.destroy()"}
    for n_steps in range(100):
        if not place.with_name("pool.img").exists():
            Pool.create(place, size_bytes=SIZE).close()
        if not killed_after(script, place, n_steps):
            break
    assert n_steps > 5
    assert loop_devices(place.parent) == []
    assert list(place.parent.iterdir()) == []


def test_identity_is_a_uuid_and_a_time(made: Pool) -> None:
    fields = json.loads((made.path / "pool.json").read_text())
    assert fields == {"format": 1, "uuid": made.uuid, "created": made.created}
    assert len(made.uuid) == 36
    assert made.created.endswith("+00:00")
