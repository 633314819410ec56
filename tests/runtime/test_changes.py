"""What `changes()` tells: every path added, modified or deleted since the start state, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from toolbox import python, sh

from webserv_rt.changes import Changes
from webserv_rt.instance import Instance

TREE = ("/opt/tree/", "/opt/tree/deep/", "/opt/tree/deep/root", "/opt/tree/leaf")


def changes(added: Iterable[str] = (), modified: Iterable[str] = (), deleted: Iterable[str] = ()) -> Changes:
    return Changes(tuple(added), tuple(modified), tuple(deleted))


def test_fresh_instance_has_no_changes(instance: Instance) -> None:
    assert instance.changes() == changes()
    assert not instance.changes()


def test_reading_and_touching_times_changes_nothing(instance: Instance) -> None:
    sh(
        instance,
        "cat /opt/other /var/lib/store/rows; ls -R /opt; touch /opt/other /opt/tree /var/lib/store/rows",
    )
    assert instance.changes() == changes()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo new > /opt/new", changes(added=["/opt/new"])),
        (
            "mkdir -p /opt/d/e; ln -s x /opt/d/l; mkfifo /opt/d/f",
            changes(added=["/opt/d/", "/opt/d/e/", "/opt/d/f", "/opt/d/l"]),
        ),
        ("echo more >> /opt/other", changes(modified=["/opt/other"])),
        ("echo OTHER > /opt/other", changes(modified=["/opt/other"])),
        ("chmod 600 /opt/other", changes(modified=["/opt/other"])),
        ("chown visitor /opt/tree", changes(modified=["/opt/tree/"])),
        ("cp /opt/other /tmp/o; cat /tmp/o > /opt/other; rm /tmp/o", changes()),
        ("rm /opt/other", changes(deleted=["/opt/other"])),
        ("rm /opt/other; echo other > /opt/other", changes()),
        ("rm -r /opt/tree", changes(deleted=TREE)),
        ("rm -r /opt/tree; echo > /opt/tree", changes(modified=["/opt/tree"], deleted=TREE[1:])),
        (
            "rm /opt/other; mkdir /opt/other; touch /opt/other/x",
            changes(added=["/opt/other/x"], modified=["/opt/other/"]),
        ),
        ("rm -r /opt/tree; mkdir /opt/tree", changes(deleted=TREE[1:])),
        (
            "rm -r /opt/tree; mkdir -p /opt/tree/deep; echo deep > /opt/tree/deep/root",
            changes(deleted=["/opt/tree/leaf"]),
        ),
        (
            "rm -r /opt/tree; mkdir /opt/tree; echo x > /opt/tree/leaf",
            changes(modified=["/opt/tree/leaf"], deleted=TREE[1:3]),
        ),
        ("mv /opt/other /opt/renamed", changes(added=["/opt/renamed"], deleted=["/opt/other"])),
        ("mv /opt/third /opt/other", changes(modified=["/opt/other"], deleted=["/opt/third"])),
        (
            "mv /opt/tree /opt/wood",
            changes(
                added=["/opt/wood/", "/opt/wood/deep/", "/opt/wood/deep/root", "/opt/wood/leaf"], deleted=TREE
            ),
        ),
        ("rm /bin/true; ln -s /bin/false /bin/true", changes(modified=["/bin/true"])),
        ("echo 127.0.0.1 evil > /etc/hosts", changes(modified=["/etc/hosts"])),
        # /etc lies in two of the layers below.
        (
            "rm -r /etc; mkdir /etc; echo x > /etc/hosts",
            changes(modified=["/etc/hosts"], deleted=["/etc/group", "/etc/hostname", "/etc/passwd"]),
        ),
        (
            "rm -r /etc",
            changes(deleted=["/etc/", "/etc/group", "/etc/hostname", "/etc/hosts", "/etc/passwd"]),
        ),
        # Data directories, as a clone of their own and through the overlay.
        ("echo 4 >> /var/lib/store/rows", changes(modified=["/var/lib/store/rows"])),
        (
            "echo x > /var/lib/store/new; chmod 700 /var/lib/store",
            changes(added=["/var/lib/store/new"], modified=["/var/lib/store/"]),
        ),
        ("rm -r /var/lib/store/sub", changes(deleted=["/var/lib/store/sub/", "/var/lib/store/sub/more"])),
        (
            "mv /var/lib/store/sub /var/lib/store/bus",
            changes(
                added=["/var/lib/store/bus/", "/var/lib/store/bus/more"],
                deleted=["/var/lib/store/sub/", "/var/lib/store/sub/more"],
            ),
        ),
        ("chown visitor /var/lib/store/rows", changes(modified=["/var/lib/store/rows"])),
        (
            "echo y > /var/lib/plain/text; rm -r /var/lib/plain; ",
            changes(deleted=["/var/lib/plain/", "/var/lib/plain/text"]),
        ),
        # Not the instance's files.
        ("echo > /dev/shm/x; echo > /dev/x", changes()),
    ],
)
def test_changes_of(instance: Instance, script: str, expected: Changes) -> None:
    sh(instance, script)
    assert instance.changes() == expected


def test_directory_in_place_of_a_symbolic_link_is_not_compared_with_what_the_link_leads_to(
    instance: Instance,
) -> None:
    """On the host, the absolute link would lead to the host's own /etc."""
    name, content = "passwd", Path("/etc/passwd").read_bytes()
    sh(
        instance,
        f"rm /opt/away; mkdir /opt/away; cat > /opt/away/{name}; chmod 644 /opt/away/{name}",
        stdin=content,
    )
    sh(instance, "rm -r /opt/tree; mkdir /opt/tree; ln -s /etc /opt/tree/deep")
    assert instance.changes() == changes(
        added=["/opt/away/passwd"],
        modified=["/opt/away/", "/opt/tree/deep"],
        deleted=["/opt/tree/deep/root", "/opt/tree/leaf"],
    )


def test_second_hard_link_is_added_and_the_first_unchanged(instance: Instance) -> None:
    sh(instance, "ln /opt/other /opt/link; ln /var/lib/store/rows /var/lib/store/link")
    assert instance.changes() == changes(added=["/opt/link", "/var/lib/store/link"])


def test_large_files_that_differ_in_one_byte_are_modified(instance: Instance) -> None:
    sh(instance, "dd if=/bin/busybox of=/tmp/b bs=1M; printf X | dd of=/tmp/b bs=1 seek=1000000 conv=notrunc")
    sh(
        instance,
        "cat /tmp/b > /bin/busybox2; mv /bin/busybox2 /bin/busybox; chmod 755 /bin/busybox; rm /tmp/b",
    )
    assert instance.changes().modified == ("/bin/busybox",)


def test_names_that_are_no_text_are_told_so_that_they_can_be_used(instance: Instance) -> None:
    script = r"""
import os
for name in (b"\xff\xfe", b"new\nline", b"a" * 255, b"\x1b[31m", "ä".encode()):
    os.mkdir(b"/opt/" + name); open(b"/var/lib/store/" + name, "w").close()
"""
    assert python(instance, script).status == 0
    added = instance.changes().added
    assert "/opt/\udcff\udcfe/" in added
    assert "/var/lib/store/new\nline" in added
    assert len(added) == 10


def test_whiteouts_that_a_process_makes_itself_hide_nothing(instance: Instance) -> None:
    script = """
import os, stat
for path in ("/opt/white", "/var/lib/store/white"):
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, 0)
    except OSError as error:
        print(path, error.errno)
try:
    os.setxattr("/opt/tree", "trusted.overlay.opaque", b"y")
except OSError as error:
    print("xattr", error.errno)
"""
    result = python(instance, script)
    assert "/opt/white 1" in result.stdout.decode()
    assert "xattr 1" in result.stdout.decode()
    assert set(instance.changes().added) <= {"/var/lib/store/white"}
    assert instance.changes().deleted == ()


def test_directories_nested_beyond_path_max_do_not_keep_other_changes_from_being_told(
    instance: Instance,
) -> None:
    script = """
import os
for start in ("/opt", "/var/lib/store"):
    os.chdir(start)
    for _ in range(1500):
        os.mkdir("d" * 20)
        os.chdir("d" * 20)
"""
    assert python(instance, script).status == 0
    sh(instance, "rm /opt/third")
    found = instance.changes()
    assert "/opt/third" in found.deleted
    assert "/opt/" + "d" * 20 + "/" in found.added
    assert instance.statistics().storage_bytes < 64 << 20
    instance.reset()
    assert instance.changes() == changes()
