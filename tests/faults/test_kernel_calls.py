"""Every call that a kernel operation makes is made to fail in turn: it succeeds all the same, or it raises an
error that names step and object, and nothing is left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from injection import CODES, DIE, HOST, INIT, Fault, Place, sweep
from leftovers import Scope

from webserv_rt.kernel import plan as steps
from webserv_rt.kernel.cgroup import CgroupHost, Hierarchy, Limits, Statistics
from webserv_rt.kernel.clone import clone_file, clone_tree
from webserv_rt.kernel.connect import connect_in_namespace
from webserv_rt.kernel.descriptor import Descriptor, open_directory
from webserv_rt.kernel.gateway import Gateway
from webserv_rt.kernel.mount import clone_mount, mount_overlay
from webserv_rt.kernel.namespace import new_network_namespace, new_user_namespace
from webserv_rt.kernel.plan import Plan, Program
from webserv_rt.kernel.process import Process, open_init_program, spawn
from webserv_rt.kernel.remove import remove_tree
from webserv_rt.template import KEPT_CAPABILITIES, describe_root

ROOT_ID = 0x70000000 + 100 * 65536
BUSYBOX = Path("/bin/busybox")

pytestmark = pytest.mark.timeout(120)
each_code = pytest.mark.parametrize("code", CODES)


@pytest.fixture
def scope(xfs: Path, tmp_path: Path) -> Scope:
    """Look at a directory of one's own on a filesystem that shares blocks."""
    directory = xfs / tmp_path.name
    directory.mkdir()
    return Scope((directory,))


@pytest.fixture
def directory(scope: Scope) -> Path:
    return scope.directories[0]


@pytest.fixture
def parent(directory: Path) -> Iterator[Descriptor]:
    with open_directory(directory) as opened:
        yield opened


@pytest.fixture
def userns() -> Iterator[Descriptor]:
    with open_init_program() as program, new_user_namespace(program, ROOT_ID, 65536) as namespace:
        yield namespace


@pytest.fixture
def root(directory: Path) -> Iterator[Descriptor]:
    """A root filesystem with one static program."""
    path = directory / "root"
    for part in ("bin", "proc", "sys", "dev", "tmp"):
        (path / part).mkdir(parents=True)
    (path / "bin/busybox").write_bytes(BUSYBOX.read_bytes())
    (path / "bin/busybox").chmod(0o755)
    with open_directory(path) as opened:
        yield opened


def make_tree(path: Path) -> None:
    """Lay down one of each kind of file, and more directories in each other than a removal keeps open."""
    (path / "full").mkdir(parents=True)
    (path / "full" / "data").write_bytes(bytes(range(256)) * 64)
    (path / "full" / "data").chmod(0o4751)
    os.chown(path / "full" / "data", 7, 8)
    os.setxattr(path / "full" / "data", "user.kept", b"value")
    os.link(path / "full" / "data", path / "other name")
    os.link(path / "full" / "data", path / "third name")
    (path / "link").symlink_to("full/data")
    os.lchown(path / "link", 9, 10)
    os.mkfifo(path / "fifo", 0o622)
    os.mknod(path / "null", 0o20666, os.makedev(1, 3))
    (path / "empty").mkdir(mode=0o711)
    os.setxattr(path / "empty", "user.kept", b"too")
    deep = path / "deep"
    for _ in range(40):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"x")


def listing(root: Path) -> list[tuple[object, ...]]:
    """List what a clone keeps of each file."""
    found: list[tuple[object, ...]] = []
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        target = path.readlink() if path.is_symlink() else None
        attributes = {name: os.getxattr(path, name) for name in os.listxattr(path, follow_symlinks=False)}
        links = status.st_nlink if not path.is_dir() else 0
        times = status.st_mtime_ns
        owner = (status.st_mode, status.st_uid, status.st_gid, status.st_rdev, links)
        found.append((path.relative_to(root), *owner, times, content, target, attributes))
    return found


@each_code
def test_clone_of_a_mount(scope: Scope, root: Descriptor, userns: Descriptor, code: int) -> None:
    faults = sweep(lambda: clone_mount(root, userns=userns, read_only=True).close(), scope=scope, code=code)
    require_failures(faults, code, at_least=2)


@pytest.mark.parametrize("by_path", [False, True])
@each_code
def test_overlay(
    scope: Scope, directory: Path, root: Descriptor, userns: Descriptor, by_path: bool, code: int
) -> None:
    for part in ("upper", "work", "frame"):
        (directory / part).mkdir()

    def mount() -> None:
        with ExitStack() as held:
            upper, work, frame = (
                held.enter_context(open_directory(directory / part)) for part in ("upper", "work", "frame")
            )
            lowers = [
                held.enter_context(clone_mount(layer, userns=userns, read_only=True))
                for layer in (frame, root)
            ]
            mount_overlay(lowers, upper, work, by_path=by_path).close()

    # The kernel makes work/work, and leaves work/incompat behind a volatile mount.
    clean_up = lambda: remove_contents(directory / "work")  # noqa: E731
    require_failures(sweep(mount, scope=scope, code=code, clean_up=clean_up), code, at_least=10)


@each_code
@pytest.mark.parametrize("place", [HOST, INIT], ids=["host", "init"])
def test_user_namespace(scope: Scope, place: Place, code: int) -> None:
    with open_init_program() as program:
        make = lambda: new_user_namespace(program, ROOT_ID, 65536).close()  # noqa: E731
        faults = sweep(make, scope=scope, place=place, code=code)
    require_failures(faults, code, at_least=5)


@each_code
def test_network_namespace(scope: Scope, code: int) -> None:
    require_failures(sweep(lambda: new_network_namespace().close(), scope=scope, code=code), code, at_least=6)


@pytest.mark.parametrize("n_threads", [1, 3])
@each_code
def test_clone_of_a_tree_is_whole_or_not_there(
    scope: Scope, directory: Path, parent: Descriptor, n_threads: int, code: int
) -> None:
    make_tree(directory / "source")
    expected = listing(directory / "source")

    def clone() -> None:
        with open_directory(directory / "source") as source:
            clone_tree(source.fileno(), parent.fileno(), "clone", n_threads=n_threads)

    def check_and_remove(_: None) -> None:
        assert listing(directory / "clone") == expected
        remove_tree(parent.fileno(), "clone")

    require_failures(sweep(clone, scope=scope, undo=check_and_remove, code=code), code, at_least=100)


@pytest.mark.parametrize("copy", [False, True])
@each_code
def test_clone_of_a_file_is_whole_or_not_there(
    scope: Scope, directory: Path, parent: Descriptor, copy: bool, code: int
) -> None:
    make_tree(directory / "source")
    (directory / "source/other name").unlink()
    (directory / "source/third name").unlink()

    def clone() -> None:
        with open_directory(directory / "source/full") as source:
            clone_file(source.fileno(), "data", parent.fileno(), "clone", copy=copy)

    def check_and_remove(_: None) -> None:
        assert listing(directory / "clone")[0][1:] == listing(directory / "source/full/data")[0][1:]
        (directory / "clone").unlink()

    require_failures(sweep(clone, scope=scope, undo=check_and_remove, code=code), code, at_least=10)


@each_code
def test_removal_of_a_tree_can_be_repeated(
    scope: Scope, directory: Path, parent: Descriptor, code: int
) -> None:
    def remove() -> None:
        make_tree(directory / "tree")
        remove_tree(parent.fileno(), "tree")

    # The clean-up is the repetition.
    faults = sweep(remove, scope=scope, clean_up=lambda: remove_tree(parent.fileno(), "tree"), code=code)
    require_failures(faults, code, at_least=20)


def usable_hierarchies() -> list[Hierarchy]:
    with CgroupHost() as host:
        return [hierarchy for hierarchy in host.hierarchies if hierarchy.refusal is None]


@pytest.mark.parametrize("code", [0, errno.EINTR, errno.ENOMEM])  # by EPERM it would not be usable
def test_discovery_of_cgroups_misses_none(scope: Scope, code: int) -> None:
    expected = usable_hierarchies()

    def check(found: list[Hierarchy]) -> None:
        assert found == expected

    sweep(usable_hierarchies, scope=scope, undo=check, code=code)


@each_code
def test_creation_of_a_cgroup_is_all_or_nothing(scope: Scope, cgroups: CgroupHost, code: int) -> None:
    path = f"{scope.cgroup}/owner/instance"
    undo = lambda _: cgroups.group(scope.cgroup).destroy()  # noqa: E731
    require_failures(sweep(lambda: cgroups.create(path), scope=scope, undo=undo, code=code), code, at_least=3)


@each_code
def test_use_of_a_cgroup(scope: Scope, cgroups: CgroupHost, code: int) -> None:
    limits = Limits(
        memory_bytes=64 << 20, memory_high_bytes=32 << 20, swap_bytes=0, cpu_weight=50, cpu_quota_us=50_000,
        cpu_period_us=100_000, pids=20, io_weight=50,
    )  # fmt: skip
    expected = cgroups.create(f"{scope.cgroup}/probe").limit(limits)
    cgroups.group(scope.cgroup).destroy()

    def use() -> tuple[str, ...]:
        group = cgroups.create(f"{scope.cgroup}/instance")
        unapplied = group.limit(limits)
        group.freeze()
        group.thaw()
        group.open_entry().close()
        assert group.pids() == []
        group.kill()
        group.wait_empty()
        group.destroy()
        return unapplied

    def check(unapplied: tuple[str, ...]) -> None:
        assert unapplied == expected

    clean_up = lambda: cgroups.group(scope.cgroup).destroy()  # noqa: E731
    faults = sweep(use, scope=scope, undo=check, clean_up=clean_up, code=code)
    require_failures(faults, code, at_least=10)


@each_code
def test_statistics_of_a_cgroup_lack_nothing_that_is_counted(
    scope: Scope, cgroups: CgroupHost, code: int
) -> None:
    group = cgroups.create(f"{scope.cgroup}/instance")
    expected = known(group.statistics())

    def check(statistics: Statistics) -> None:
        assert known(statistics) == expected

    sweep(group.statistics, scope=scope, undo=check, code=code)


def known(statistics: Statistics) -> set[str]:
    return {name for name, value in vars(statistics).items() if value is not None}


# -- processes ------------------------------------------------------------------------------------


@pytest.fixture
def start(
    scope: Scope, cgroups: CgroupHost, directory: Path, root: Descriptor, userns: Descriptor
) -> Iterator[Callable[[Program], Process]]:
    """Start a program as pid 1 of an instance, with all that the runtime does for one."""
    (directory / "upper").mkdir()
    (directory / "work").mkdir()
    for part in ("upper", "work"):
        os.chown(directory / part, ROOT_ID, ROOT_ID)
    group = cgroups.create(f"{scope.cgroup}/instance")
    with ExitStack() as kept:
        program = kept.enter_context(open_init_program())
        network = kept.enter_context(new_network_namespace())
        log = kept.enter_context(Descriptor(os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)))

        def start_one(service: Program) -> Process:
            remove_contents(directory / "work")
            with ExitStack() as held:
                upper = held.enter_context(open_directory(directory / "upper"))
                work = held.enter_context(open_directory(directory / "work"))
                lower = held.enter_context(clone_mount(root, userns=userns, read_only=True))
                overlay = held.enter_context(mount_overlay([lower], upper, work, by_path=False))
                entry = held.enter_context(group.open_entry())
                plan = Plan()
                for tasks in entry.tasks:
                    plan.join_cgroup(tasks)
                plan.unshare(steps.CLONE_NEWCGROUP | steps.CLONE_NEWTIME)
                plan.enter(network, steps.CLONE_NEWNET)
                plan.host_name("faults.test")
                describe_root(plan, overlay, [], ROOT_ID, 1 << 20)
                plan.open_files(1000)
                plan.confine(userns, KEPT_CAPABILITIES)
                plan.service(service, log)
                plan.serve(15, log)
                return spawn(program, plan, new_instance=True, cgroup=entry.born_in)

        yield start_one


SLEEPER = Program("sleeper", ["/bin/busybox", "sleep", "1000"])


def end(process: Process) -> None:
    process.kill()
    process.wait()
    process.close()


@pytest.mark.parametrize("place", [HOST, INIT], ids=["host", "init"])
@each_code
def test_start_of_an_instance(
    scope: Scope, directory: Path, start: Callable[[Program], Process], place: Place, code: int
) -> None:
    clean_up = lambda: remove_contents(directory / "work")  # noqa: E731
    faults = sweep(lambda: start(SLEEPER), scope=scope, undo=end, clean_up=clean_up, place=place, code=code)
    require_failures(faults, code, at_least=20)


def test_end_of_pid_1_while_it_sets_itself_up(
    scope: Scope, directory: Path, start: Callable[[Program], Process]
) -> None:
    clean_up = lambda: remove_contents(directory / "work")  # noqa: E731
    faults = sweep(lambda: start(SLEEPER), scope=scope, undo=end, clean_up=clean_up, place=INIT, action=DIE)
    require_failures(faults, 0, at_least=50)


# -- gateway --------------------------------------------------------------------------------------


@each_code
def test_gateway_start_and_stop(scope: Scope, code: int) -> None:
    require_failures(sweep(lambda: Gateway().close(), scope=scope, code=code), code, at_least=1)


@each_code
def test_gateway_front_doors(scope: Scope, code: int) -> None:
    def open_doors() -> None:
        with Gateway() as gateway:
            backend = gateway.add_backend()
            gateway.listen(backend, 80)
            gateway.socks({("shop.test", 80): (backend, 80)})
            with new_network_namespace() as network:
                backend.open(network.fileno())
            backend.hold()
            backend.close()

    require_failures(sweep(open_doors, scope=scope, code=code), code, at_least=5)


@each_code
def test_connection_into_a_namespace(scope: Scope, code: int) -> None:
    with new_network_namespace() as network:

        def connect() -> None:
            try:
                connect_in_namespace(network.fileno(), 80, 1.0)
            except OSError as error:
                if error.errno != errno.ECONNREFUSED:
                    raise

        sweep(connect, scope=scope, code=code)


# -- helpers --------------------------------------------------------------------------------------


def require_failures(faults: list[Fault], code: int, at_least: int) -> None:
    """Fail when hardly any call made the operation fail: the sweep would have tested nothing.

    EINTR is met by few calls, and by most of those made again.
    """
    if code != errno.EINTR:
        n_failures = sum(fault.error is not None for fault in faults)
        assert n_failures >= at_least, f"only {n_failures} of {len(faults)} faults made it fail"


def remove_contents(directory: Path) -> None:
    with open_directory(directory) as opened:
        for path in directory.iterdir():
            remove_tree(opened.fileno(), path.name)
