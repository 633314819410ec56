"""The command line, run as a user runs it: real processes on a pool of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toolbox as box

COMMAND = [sys.executable, "-c", "from webserv_rt.cli import main; main()"]
BENCH_KEYS = {
    "site",
    "strategy",
    "rounds",
    "errors",
    "engine_ms",
    "ready_ms",
    "cpu_ms_per_reset",
    "resets_per_s",
    "storage_bytes",
    "memory",
    "peers",
    "leaks",
    "machine",
}


def webserv_rt(*arguments: str, pool: Path, status: int = 0) -> str:
    """Run the command; return its standard output, or its standard error where it is to fail."""
    environment = {**os.environ, "WEBSERV_RT_POOL": str(pool), "COLUMNS": "160"}
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture(scope="module")
def cli_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A pool made, and at the end destroyed, by command."""
    path = tmp_path_factory.mktemp("cli") / "pool"
    webserv_rt("pool", "create", "--size", "1G", pool=path)
    yield path
    webserv_rt("pool", "destroy", "--yes", pool=path)
    assert not path.exists()
    assert not path.with_name("pool.img").exists()


@pytest.fixture(scope="module")
def base(cli_pool: Path, toolbox_root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    site = tmp_path_factory.mktemp("site") / "site.toml"
    site.write_text(box.SITE)
    webserv_rt("base", "import", str(toolbox_root), "box", "--site", str(site), pool=cli_pool)
    return "box"


def test_pool_status_tells_size_and_use(cli_pool: Path) -> None:
    status = json.loads(webserv_rt("pool", "status", "--json", pool=cli_pool))
    assert status["path"] == str(cli_pool)
    assert 0.9e9 < status["size_bytes"] < 1.1e9
    assert 0 < status["used_bytes"] < status["size_bytes"]


def test_pool_grows_by_command(cli_pool: Path) -> None:
    webserv_rt("pool", "grow", "--size", "1500M", pool=cli_pool)
    status = json.loads(webserv_rt("pool", "status", "--json", pool=cli_pool))
    assert status["size_bytes"] > 1.4e9


def test_size_that_is_none_is_refused(cli_pool: Path) -> None:
    assert "20G" in webserv_rt("pool", "grow", "--size", "lots", pool=cli_pool, status=2)


def test_missing_pool_says_how_to_make_one(tmp_path: Path) -> None:
    assert "pool create" in webserv_rt("base", "ls", pool=tmp_path / "none", status=1)


def test_base_is_listed_shown_and_verified(cli_pool: Path, base: str) -> None:
    listed = json.loads(webserv_rt("base", "ls", "--json", pool=cli_pool))
    assert [row["name"] for row in listed] == [base]
    shown = json.loads(webserv_rt("base", "show", base, "--json", pool=cli_pool))
    assert shown["site"] == box.SITE
    assert "as sealed" in webserv_rt("base", "verify", base, pool=cli_pool)


def test_damaged_base_does_not_verify(cli_pool: Path, toolbox_root: Path) -> None:
    webserv_rt(
        "base", "import", str(toolbox_root), "damaged", pool=cli_pool, status=1
    )  # says nothing how to run
    assert [row["name"] for row in json.loads(webserv_rt("base", "ls", "--json", pool=cli_pool))] == ["box"]
    changed = cli_pool / "bases/box/root/opt/other"
    before, times = changed.read_bytes(), changed.stat()
    changed.write_bytes(b"changed")
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "opt/other" in webserv_rt("base", "verify", "box", pool=cli_pool, status=1)
    changed.write_bytes(before)
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    webserv_rt("base", "verify", "box", pool=cli_pool)


def test_unknown_base_names_the_known_ones(cli_pool: Path, base: str) -> None:
    assert base in webserv_rt("bench", "reset", "nonesuch", pool=cli_pool, status=1)


def test_run_serves_until_interrupted_and_leaves_nothing(cli_pool: Path, base: str) -> None:
    environment = {**os.environ, "WEBSERV_RT_POOL": str(cli_pool), "COLUMNS": "160"}
    port = free_port()
    running = subprocess.Popen(
        [*COMMAND, "run", base, "-n", "2", "--first-port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    try:
        for number in (port, port + 1):
            assert page(f"http://127.0.0.1:{number}/", deadline_s=60) == box.PAGE
    finally:
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=60)
    assert running.returncode == 0, output
    assert "all instances removed" in output
    assert list((cli_pool / "owners").iterdir()) == []


def test_gc_collects_a_killed_run(cli_pool: Path, base: str) -> None:
    environment = {**os.environ, "WEBSERV_RT_POOL": str(cli_pool), "COLUMNS": "160"}
    port = free_port()
    running = subprocess.Popen(
        [*COMMAND, "run", base, "--first-port", str(port)], stdout=subprocess.DEVNULL, env=environment
    )
    try:
        page(f"http://127.0.0.1:{port}/", deadline_s=60)
    finally:
        running.kill()
        running.wait()
    collected = json.loads(webserv_rt("gc", "--json", pool=cli_pool))
    assert len(collected["owners"]) == 1
    assert collected["processes"] >= 2
    assert "nothing to remove" in webserv_rt("gc", pool=cli_pool)


@pytest.mark.parametrize("strategy", ["cold", "standby"])
@pytest.mark.parametrize("kind", ["reset", "launch"])
def test_bench_prints_one_object_with_every_figure(
    cli_pool: Path, base: str, kind: str, strategy: str
) -> None:
    result = json.loads(
        webserv_rt("bench", kind, base, "--strategy", strategy, "-n", "3", "--json", pool=cli_pool)
    )
    assert set(result) == BENCH_KEYS
    assert (result["site"], result["strategy"], result["rounds"], result["errors"]) == (base, strategy, 3, 0)
    for name in ("engine_ms", "ready_ms"):
        figures: dict[str, Any] = result[name]
        assert 0 < figures["p50"] <= figures["p95"] <= figures["p99"] <= figures["max"]
    assert result["memory"]["pss_bytes"] > 0
    assert result["machine"]["cpus"] >= 1


def test_bench_measures_a_peer_and_draws(cli_pool: Path, base: str, tmp_path: Path) -> None:
    peer = tmp_path / "slow-peer.sh"
    peer.write_text("#!/bin/sh\nfor i in $(seq $3); do echo '{\"ready_ms\": 500.0}'; done\n")
    peer.chmod(0o755)
    picture = tmp_path / "bench.svg"
    table = webserv_rt(
        "bench", "reset", base, "-n", "3", "--peer", str(peer), "--plot", str(picture), pool=cli_pool
    )
    assert "peer slow-peer" in table
    assert "p95" in table
    assert "slow-peer" in picture.read_text()


def test_failing_peer_is_told(cli_pool: Path, base: str, tmp_path: Path) -> None:
    peer = tmp_path / "broken.sh"
    peer.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    peer.chmod(0o755)
    assert "no luck" in webserv_rt(
        "bench", "reset", base, "-n", "1", "--peer", str(peer), pool=cli_pool, status=1
    )


def test_doctor_answers_in_json(cli_pool: Path) -> None:
    checks = json.loads(webserv_rt("doctor", "--json", pool=cli_pool))
    assert {check["status"] for check in checks} <= {"ok", "degraded"}


def test_base_is_removed_by_command(cli_pool: Path, toolbox_root: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(box.SITE)
    webserv_rt("base", "import", str(toolbox_root), "passing", "--site", str(site), pool=cli_pool)
    webserv_rt("base", "rm", "passing", pool=cli_pool)
    assert "passing" not in webserv_rt("base", "ls", pool=cli_pool)


def test_bad_site_spec_names_file_and_line(cli_pool: Path, toolbox_root: Path, tmp_path: Path) -> None:
    site = tmp_path / "bad.toml"
    site.write_text(box.SITE.replace("port = 80", 'port = "eighty"'))
    error = webserv_rt(
        "base", "import", str(toolbox_root), "bad", "--site", str(site), pool=cli_pool, status=1
    )
    assert re.search(r"bad\.toml:\d+: port", error.replace("\n", ""))


def test_help_names_every_command() -> None:
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    for command in ("doctor", "pool", "base", "run", "bench", "demo", "gc"):
        assert re.search(rf"\b{command}\b", done.stdout)


def free_port() -> int:
    """Return the first of two free ports in a row, outside of the range that the kernel gives out."""
    for port in range(20000, 30000, 2):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def page(url: str, deadline_s: float) -> str:
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=deadline_s) as answer:
                return str(answer.read().decode())
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_logs_in_an_error_neither_steer_the_terminal_nor_the_markup(cli_pool: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    box.make_root(root)
    said = r"\033]0;evil\007\033[2J \\[/x] [bold]"
    site = box.SITE.replace(box.WEB, json.dumps(["/bin/sh", "-c", f"printf '{said}'; exit 1"]))
    (tmp_path / "site.toml").write_text(site)
    webserv_rt("base", "import", str(root), "evil", "--site", str(tmp_path / "site.toml"), pool=cli_pool)
    try:
        shown = webserv_rt("run", "evil", pool=cli_pool, status=1)
    finally:
        webserv_rt("base", "rm", "evil", pool=cli_pool)
    assert "\x1b" not in shown
    assert r"\x1b]0;evil\x07\x1b[2J \[/x] [bold]" in " ".join(shown.split())
