"""Real servers, stopped or killed; the proofs must tell which, from the files alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from webserv_rt.storage.cleanliness import UncleanDatabase, prove_mariadb_clean, prove_postgresql_clean
from webserv_rt.storage.redo_log import RedoLog

POSTGRESQL_DIRECTORIES = [str(found) for found in Path("/usr/lib/postgresql").glob("*/bin")]
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *POSTGRESQL_DIRECTORIES])
START_TIMEOUT_S = 60.0


def program(name: str, package: str) -> str:
    found = shutil.which(name, path=SEARCH_PATH)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian package {package})")
    return found


@contextmanager
def server(
    command: Sequence[str], log: Path, ready: str, user: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until its log says READY; kill what the block leaves running."""
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, user=user)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while ready not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def stop(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.send_signal(number)
    process.wait(60)


# MariaDB


@pytest.fixture
def mariadb_datadir(tmp_path: Path) -> Path:
    datadir = tmp_path / "mysql"
    datadir.mkdir()
    return datadir


@contextmanager
def mariadb(datadir: Path, sql: Sequence[str] = (), *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a MariaDB that has carried out SQL; it fills an empty datadir by itself."""
    script = datadir.with_suffix(".sql")
    script.write_text("\n".join(sql) + "\n")
    user = ["--user=root"] if os.geteuid() == 0 else []
    command = [
        *(program("mariadbd", "mariadb-server-core"), "--no-defaults", *user, "--skip-grant-tables"),
        *("--skip-networking", f"--socket={datadir}.sock", f"--datadir={datadir}", f"--init-file={script}"),
        *("--innodb-buffer-pool-size=16M", "--innodb-use-native-aio=0", *options),
    ]
    with server(command, datadir.with_suffix(".log"), "ready for connections") as process:
        yield process


INNODB_WRITES = (
    "CREATE DATABASE IF NOT EXISTS shop;",
    "CREATE TABLE IF NOT EXISTS shop.orders (id SERIAL, what LONGTEXT) ENGINE=InnoDB;",
    "INSERT INTO shop.orders (what) VALUES ('rope');",
)
ARIA_WRITES = (
    "CREATE DATABASE IF NOT EXISTS shop;",
    "CREATE TABLE shop.notes (id INT PRIMARY KEY) ENGINE=Aria;",
    "INSERT INTO shop.notes VALUES (1);",
)


def test_mariadb_that_was_stopped_is_clean(mariadb_datadir: Path) -> None:
    with mariadb(mariadb_datadir, INNODB_WRITES) as process:
        stop(process, signal.SIGTERM)
    prove_mariadb_clean(mariadb_datadir)


def test_mariadb_that_was_killed_after_writes_is_unclean(mariadb_datadir: Path) -> None:
    with mariadb(mariadb_datadir, INNODB_WRITES) as process:
        stop(process, signal.SIGKILL)
    with pytest.raises(UncleanDatabase, match="ibtmp1 is there"):
        prove_mariadb_clean(mariadb_datadir)


def test_redo_log_of_a_killed_mariadb_is_enough_to_tell(mariadb_datadir: Path) -> None:
    with mariadb(mariadb_datadir, INNODB_WRITES) as process:
        stop(process, signal.SIGKILL)
    (mariadb_datadir / "ibtmp1").unlink()
    with pytest.raises(UncleanDatabase, match="ib_logfile0 holds changes after checkpoint LSN"):
        prove_mariadb_clean(mariadb_datadir)


def test_mariadb_that_recovered_and_was_stopped_is_clean_again(mariadb_datadir: Path) -> None:
    with mariadb(mariadb_datadir, INNODB_WRITES) as process:
        stop(process, signal.SIGKILL)
    with mariadb(mariadb_datadir) as process:
        stop(process, signal.SIGTERM)
    prove_mariadb_clean(mariadb_datadir)


def test_running_mariadb_is_unclean(mariadb_datadir: Path) -> None:
    with mariadb(mariadb_datadir), pytest.raises(UncleanDatabase, match="its server runs or was killed"):
        prove_mariadb_clean(mariadb_datadir)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_redo_log_that_went_around_its_ring_is_judged_right(
    mariadb_datadir: Path, number: signal.Signals
) -> None:
    insert = "INSERT INTO shop.orders (what) VALUES (REPEAT('tide', 250000));"
    with mariadb(mariadb_datadir, [*INNODB_WRITES, *[insert] * 9], "--innodb-log-file-size=4M") as process:
        stop(process, number)
    log = mariadb_datadir / "ib_logfile0"
    assert RedoLog(log).checkpoint.lsn > log.stat().st_size
    assert RedoLog(log).is_clean() is (number == signal.SIGTERM)


def test_aria_table_that_was_not_closed_is_named(mariadb_datadir: Path, tmp_path: Path) -> None:
    with mariadb(mariadb_datadir, ARIA_WRITES) as process:
        stop(process, signal.SIGTERM)
    killed = tmp_path / "killed"
    killed.mkdir()
    with mariadb(killed, ARIA_WRITES) as process:
        stop(process, signal.SIGKILL)
    # InnoDB's files of the stopped one, so that only the Aria table can give the killed one away.
    shutil.copytree(killed / "shop", mariadb_datadir / "shop", dirs_exist_ok=True)
    with pytest.raises(UncleanDatabase, match="the table shop/notes was not closed"):
        prove_mariadb_clean(mariadb_datadir)


def test_directory_without_a_database_is_not_proven_clean(tmp_path: Path) -> None:
    with pytest.raises(UncleanDatabase, match="ib_logfile0"):
        prove_mariadb_clean(tmp_path)
    with pytest.raises(UncleanDatabase, match="pg_control"):
        prove_postgresql_clean(tmp_path)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [(0, "format"), (20, "checksum of its header"), (4096 + 7, None), (-1, None)],
    ids=["format", "header", "one checkpoint", "end of the ring"],
)
def test_damage_to_the_redo_log_is_seen_where_it_matters(
    mariadb_datadir: Path, offset: int, reason: str | None
) -> None:
    with mariadb(mariadb_datadir, INNODB_WRITES) as process:
        stop(process, signal.SIGTERM)
    log = mariadb_datadir / "ib_logfile0"
    damaged = bytearray(log.read_bytes())
    damaged[offset] ^= 0x40
    log.write_bytes(damaged)
    if reason is not None:
        with pytest.raises(UncleanDatabase, match=reason):
            prove_mariadb_clean(mariadb_datadir)
    elif offset > 0:
        # The other checkpoint is older: after it comes the log that led to the newer one.
        with pytest.raises(UncleanDatabase, match="holds changes"):
            prove_mariadb_clean(mariadb_datadir)
    else:
        prove_mariadb_clean(mariadb_datadir)


# PostgreSQL


@pytest.fixture
def cluster() -> Iterator[Path]:
    """An empty cluster that its server's user can reach, which pytest's own directories are not."""
    initdb = program("initdb", "postgresql")
    with tempfile.TemporaryDirectory(prefix="wsrt-postgresql-") as directory:
        if postgres_user() is not None:
            shutil.chown(directory, "postgres", "postgres")
        datadir = Path(directory) / "main"
        command = [initdb, "--no-sync", "--auth=trust", f"--pgdata={datadir}"]
        subprocess.run(command, check=True, capture_output=True, user=postgres_user(), cwd=directory)
        yield datadir


def postgres_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else None


@contextmanager
def postgresql(datadir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a PostgreSQL to which a table has been written."""
    command = [
        *(program("postgres", "postgresql"), "-D", str(datadir), "-k", str(datadir.parent)),
        *("-c", "listen_addresses=", "-c", "max_connections=10"),
    ]
    log = datadir.parent / "log"
    with server(command, log, "ready to accept connections", postgres_user()) as process:
        psql = [program("psql", "postgresql-client"), "-h", str(datadir.parent), "-d", "postgres"]
        write = "CREATE TABLE orders (what text); INSERT INTO orders VALUES ('rope')"
        subprocess.run([*psql, "-c", write], check=True, capture_output=True, user=postgres_user())
        yield process


def test_postgresql_that_was_stopped_is_clean(cluster: Path) -> None:
    with postgresql(cluster) as process:
        stop(process, signal.SIGTERM)
    prove_postgresql_clean(cluster)


def test_postgresql_that_was_killed_after_writes_is_unclean(cluster: Path) -> None:
    with postgresql(cluster) as process:
        stop(process, signal.SIGKILL)
    with pytest.raises(UncleanDatabase, match=r"postmaster\.pid is there"):
        prove_postgresql_clean(cluster)


def test_control_file_of_a_killed_postgresql_is_enough_to_tell(cluster: Path) -> None:
    with postgresql(cluster) as process:
        stop(process, signal.SIGKILL)
    (cluster / "postmaster.pid").unlink()
    with pytest.raises(UncleanDatabase, match='"in production"'):
        prove_postgresql_clean(cluster)


def test_running_postgresql_is_unclean(cluster: Path) -> None:
    with postgresql(cluster), pytest.raises(UncleanDatabase):
        prove_postgresql_clean(cluster)


def test_damaged_control_file_is_not_believed(cluster: Path) -> None:
    prove_postgresql_clean(cluster)
    control = cluster / "global" / "pg_control"
    damaged = bytearray(control.read_bytes())
    damaged[60] ^= 1
    control.write_bytes(damaged)
    with pytest.raises(UncleanDatabase, match="checksum"):
        prove_postgresql_clean(cluster)
