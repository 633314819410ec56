"""One instance from the first call to the last: what each method does, and what it says when it cannot."""

from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path

import pytest
import toolbox as box
from conftest import NewBase
from toolbox import get, python, sh

from webserv_rt.command import CommandTimeout
from webserv_rt.errors import WebservError
from webserv_rt.host import Host
from webserv_rt.instance import Instance
from webserv_rt.strategy import NotReady


def count_processes(instance: Instance) -> int:
    return len(instance.incarnation.cgroup.pids())


def test_created_instance_runs_nothing_until_started(host: Host) -> None:
    with host.create("toolbox") as instance:
        assert instance.state == "created"
        with pytest.raises(
            WebservError, match=f"instance {instance.name} is created: start or reset it first"
        ):
            instance.wait_ready()
        instance.start()
        assert instance.state == "starting"
        instance.wait_ready()
        assert instance.state == "ready"
        assert get(instance) == (200, box.PAGE)


def test_url_leads_to_the_port_on_the_host(instance: Instance) -> None:
    assert instance.url == f"http://127.0.0.1:{instance.port}/"


def test_chosen_port_is_used_and_a_taken_one_is_refused_leaving_nothing(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"{port}.*EADDRINUSE"):
            host.launch("toolbox", name="wanted", port=port)
    with host.launch("toolbox", name="wanted", port=port) as instance:
        assert instance.port == port
        assert get(instance) == (200, box.PAGE)


def test_name_of_a_living_instance_is_refused_and_free_again_after_removal(host: Host) -> None:
    with host.create("toolbox", name="one"), pytest.raises(WebservError, match="is an instance one already"):
        host.create("toolbox", name="one")
    host.create("toolbox", name="one").remove()


def test_unknown_base_and_unknown_strategy_are_refused_by_name(host: Host) -> None:
    with pytest.raises(WebservError, match=r"there is no base nothing; there are: .*toolbox"):
        host.create("nothing")
    with pytest.raises(WebservError, match="strategy 'warm': use cold or standby"):
        host.create("toolbox", strategy="warm")  # type: ignore[arg-type]
    assert host.instances() == []


def test_started_instance_refuses_a_second_start(instance: Instance) -> None:
    with pytest.raises(WebservError, match="runs already: reset it, or stop it first"):
        instance.start()
    assert get(instance) == (200, box.PAGE)


def test_timing_tells_the_runtimes_own_share_and_the_whole(instance: Instance) -> None:
    timing = instance.timing
    assert timing is not None
    assert 0 < timing.engine_ms < timing.ready_ms < 30_000
    assert instance.reset() == instance.timing != timing


def test_reset_brings_back_the_start_state_and_keeps_name_and_port(instance: Instance) -> None:
    before = (instance.name, instance.port, instance.url)
    sh(
        instance,
        "echo changed > /srv/www/index.html; rm -r /opt/tree; echo five > /var/lib/store/rows; echo x > /tmp/x",
    )
    assert get(instance) == (200, "changed\n")
    instance.reset()
    assert get(instance) == (200, box.PAGE)
    assert sh(instance, "cat /opt/tree/leaf /var/lib/store/rows; ls /tmp") == "leaf\none\ntwo\nthree\n"
    assert (instance.name, instance.port, instance.url) == before


def test_connection_made_during_a_reset_waits_and_is_served_by_the_new_state(instance: Instance) -> None:
    sh(instance, "echo old > /srv/www/index.html")
    answers: list[tuple[int, str]] = []
    instance.backend.hold()
    client = threading.Thread(target=lambda: answers.append(get(instance)))
    client.start()
    time.sleep(0.1)
    assert answers == []
    instance.reset()
    client.join()
    assert answers == [(200, box.PAGE)]


def test_standby_reset_hands_over_a_spare_that_nobody_has_used(host: Host) -> None:
    with host.launch("toolbox", strategy="standby") as instance:
        host.await_spares("toolbox")
        for _ in range(3):
            first = instance.incarnation
            sh(instance, "echo dirty > /srv/www/index.html; sleep 1000 >/dev/null 2>&1 &")
            timing = instance.reset()
            assert instance.incarnation is not first
            assert get(instance) == (200, box.PAGE)
            assert "sleep" not in sh(instance, "ps")
            host.await_spares("toolbox")
        assert timing.ready_ms < 1000


def test_stopped_instance_says_so_and_starts_again_from_the_start_state(instance: Instance) -> None:
    sh(instance, "echo gone > /srv/www/index.html")
    instance.stop()
    assert instance.state == "stopped"
    for call in (
        instance.changes,
        instance.statistics,
        instance.logs,
        instance.stop,
        lambda: instance.exec(["/bin/true"]),
    ):
        with pytest.raises(WebservError, match="is stopped: start or reset it first"):
            call()
    instance.launch()
    assert get(instance) == (200, box.PAGE)


def test_stop_sends_the_stop_signal_and_waits_for_the_services(host: Host, new_base: NewBase) -> None:
    script = (
        "trap 'echo told; sleep 0.3; echo finished; exit 0' QUIT; touch /tmp/up; while :; do sleep 0.05; done"
    )
    base = new_base(
        f"""
        name = "slow-end"
        port = 80
        [[services]]
        name = "a"
        command = ["/bin/sh", "-c", "{script}"]
        [ready]
        command = ["/bin/test", "-e", "/tmp/up"]
        [stop]
        signal = "QUIT"
        timeout_s = 10
        """
    )
    instance = host.launch(base)
    with (instance.incarnation.layers.path / "logs/a.log").open() as log:
        instance.stop()
        assert log.read() == "told\nfinished\n"


def test_service_that_ignores_the_stop_signal_is_killed_after_the_time_out(
    host: Host, new_base: NewBase
) -> None:
    base = new_base(
        """
        name = "deaf"
        port = 80
        [[services]]
        name = "deaf"
        command = ["/bin/sh", "-c", "trap '' TERM INT HUP; echo 1 >/tmp/deaf; while :; do sleep 1; done"]
        [ready]
        command = ["/bin/test", "-e", "/tmp/deaf"]
        [stop]
        timeout_s = 0.5
        """
    )
    with host.launch(base) as instance:
        began = time.monotonic()
        instance.stop()
        assert 0.5 <= time.monotonic() - began < 3
        assert instance.state == "stopped"


def test_removed_instance_refuses_everything_but_a_second_removal(host: Host) -> None:
    instance = host.launch("toolbox")
    port = instance.port
    instance.remove()
    instance.remove()
    assert instance.state == "removed"
    assert host.instances() == []
    for call in (instance.start, instance.reset, instance.launch):
        with pytest.raises(WebservError, match="is removed: launch another one"):
            call()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_crashed_instance_can_be_reset(instance: Instance) -> None:
    instance.incarnation.process.kill()
    instance.incarnation.process.wait()
    instance.reset()
    assert get(instance) == (200, box.PAGE)


# exec


def test_exec_returns_status_and_both_outputs(instance: Instance) -> None:
    result = instance.exec(["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (result.status, result.stdout, result.stderr) == (7, b"out\n", b"err\n")


def test_exec_reports_death_by_signal_as_shells_do(instance: Instance) -> None:
    assert instance.exec(["/bin/sh", "-c", "kill -9 $$"]).status == 137


def test_exec_feeds_standard_input_and_closes_it(instance: Instance) -> None:
    assert instance.exec(["/bin/cat"], stdin=b"fed").stdout == b"fed"
    assert instance.exec(["/bin/cat"]).stdout == b""


def test_exec_carries_megabytes_both_ways_at_once(instance: Instance) -> None:
    data = bytes(range(256)) * (16 << 10)
    result = instance.exec(["/bin/sh", "-c", "tee /dev/stderr"], stdin=data, timeout_s=60)
    assert result.stdout == data
    assert result.stderr == data


def test_exec_of_a_command_that_reads_nothing_does_not_wait_for_it(instance: Instance) -> None:
    assert instance.exec(["/bin/true"], stdin=b"x" * (1 << 20), timeout_s=30).status == 0


def test_exec_runs_as_the_user_asked_for_with_groups_home_and_name(instance: Instance) -> None:
    assert sh(instance, "id -u; id -g; id -G; echo $HOME $USER; pwd", user="visitor") == (
        "1000\n1000\n1000 2000\n/home/visitor visitor\n/\n"
    )
    assert sh(instance, "id -u; id -G", user="1234:4321") == "1234\n4321\n"
    with pytest.raises(WebservError, match="nosuch"):
        instance.exec(["/bin/true"], user="nosuch")


def test_exec_takes_directory_and_environment(instance: Instance) -> None:
    assert sh(instance, "pwd; echo $GREETING", directory="/opt/tree", environment={"GREETING": "a = b"}) == (
        "/opt/tree\na = b\n"
    )
    result = instance.exec(["/bin/true"], directory="/no/such")
    assert result.status == 127
    assert b"cannot start /bin/true: /no/such: No such file or directory" in result.stderr


def test_exec_searches_the_path_and_says_what_is_not_there(instance: Instance) -> None:
    assert instance.exec(["true"]).status == 0
    result = instance.exec(["no-such-program"])
    assert result.status == 127
    assert b"no-such-program: No such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [([], "needs at least a program"), ("ls -l", "takes a sequence of strings"), (["ls", "a\0b"], "NUL")],
)
def test_exec_refuses_bad_arguments_by_name(instance: Instance, arguments: list[str], text: str) -> None:
    with pytest.raises((WebservError, ValueError), match=text):
        instance.exec(arguments)


def test_exec_commands_may_open_their_standard_streams_by_name(instance: Instance) -> None:
    """Scripts write to /dev/stderr, as root and as anybody else."""
    for user in ("root", "visitor"):
        result = instance.exec(
            ["/bin/sh", "-c", "echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin"],
            user=user,
            stdin=b"in",
        )
        assert (result.stdout, result.stderr) == (b"out\nin", b"err\n"), user


def test_services_may_open_their_log_by_name(host: Host, new_base: NewBase) -> None:
    """Official images log to /dev/stdout, opened by whichever user the server runs as."""
    base = new_base(
        """
        name = "logger"
        port = 80
        [[services]]
        name = "hello"
        command = ["/bin/sh", "-c", "echo named >/dev/stdout; echo error >>/dev/stderr; touch /tmp/up; sleep 1000"]
        user = "visitor"
        [ready]
        command = ["/bin/test", "-e", "/tmp/up"]
        """
    )
    with host.launch(base) as instance:
        assert instance.logs("hello") == "named\nerror\n"


def test_exec_time_out_kills_all_that_the_command_started_and_nothing_else(instance: Instance) -> None:
    before = count_processes(instance)
    script = "(setsid sleep 1000 &); (sleep 1000 & sleep 1000); sleep 1000"
    began = time.monotonic()
    with pytest.raises(CommandTimeout, match=re.escape("/bin/sh did not end within 0.5 s and was killed")):
        instance.exec(["/bin/sh", "-c", script], timeout_s=0.5)
    assert time.monotonic() - began < 3
    deadline = time.monotonic() + 5
    while count_processes(instance) > before:
        assert time.monotonic() < deadline, sh(instance, "ps")
        time.sleep(0.01)
    assert get(instance) == (200, box.PAGE)


def test_exec_ends_with_its_command_though_a_daemon_keeps_its_output_open(instance: Instance) -> None:
    began = time.monotonic()
    result = instance.exec(["/bin/sh", "-c", "echo started; sleep 1000 & exit 0"], timeout_s=30)
    assert (result.status, result.stdout) == (0, b"started\n")
    assert time.monotonic() - began < 10
    assert "sleep 1000" in sh(instance, "ps")


def test_exec_sees_the_instance_and_nothing_of_the_host(instance: Instance) -> None:
    assert sh(instance, "hostname; cat /etc/hosts") == (
        "toolbox.test\n127.0.0.1 localhost\n::1 localhost\n127.0.0.1 toolbox.test www.toolbox.test\n"
    )
    assert sh(instance, "cat /proc/1/comm").strip() == "wsrt-init"
    assert sh(instance, "ls /sys/class/net").strip() == "lo"


# logs


def test_logs_hold_the_ends_of_what_services_wrote(host: Host, new_base: NewBase) -> None:
    base = new_base(
        """
        name = "talker"
        port = 80
        [[services]]
        name = "many"
        command = ["/bin/sh", "-c", "seq 1 20000; echo last >&2; touch /tmp/up; exec sleep 1000"]
        [ready]
        command = ["/bin/test", "-e", "/tmp/up"]
        """
    )
    with host.launch(base) as instance:
        assert instance.logs("many").startswith("1\n2\n")
        assert instance.logs("many").endswith("\n20000\nlast\n")
        assert instance.logs("many", max_bytes=5) == "last\n"
        assert "--- many.log ---" in instance.logs()
        with pytest.raises(WebservError, match="has no service 'other': there are init, many"):
            instance.logs("other")
        instance.reset()
        assert instance.logs("many").count("last") == 1


# statistics


def test_statistics_are_plausible(instance: Instance) -> None:
    while (calm := instance.statistics()).n_processes > 2:
        time.sleep(0.01)  # the process that served the readiness probe is about to end
    assert calm.n_processes == 2
    assert 50_000 < calm.pss_bytes < 20 << 20
    assert calm.memory_bytes is not None and 0 < calm.memory_bytes < 50 << 20
    assert calm.storage_bytes < 1 << 20
    hold = "import sys,time; data = b'x' * (64 << 20); open('/tmp/up','w').close(); time.sleep(1000)"
    busy = threading.Thread(
        target=lambda: instance.exec(["/usr/bin/python3", "-ISs", "-c", hold]), name="exec", daemon=True
    )
    busy.start()
    sh(
        instance,
        "while ! test -e /tmp/up; do sleep 0.05; done; dd if=/dev/zero of=/opt/file bs=1M count=8; sync; i=0; while test $i -lt 100000; do i=$((i+1)); done",
    )
    loaded = instance.statistics()
    instance.reset()
    busy.join(10)
    assert not busy.is_alive()
    assert loaded.pss_bytes - calm.pss_bytes > 64 << 20
    assert loaded.memory_bytes is not None and loaded.memory_bytes - calm.memory_bytes > 64 << 20
    assert loaded.cpu_ms is not None and calm.cpu_ms is not None and loaded.cpu_ms - calm.cpu_ms > 50
    assert 8 << 20 <= loaded.storage_bytes - calm.storage_bytes < 10 << 20
    assert instance.statistics().storage_bytes < 1 << 20


def test_statistics_do_not_count_blocks_shared_with_the_base(
    host: Host, new_base: NewBase, toolbox_root: Path, tmp_path: Path
) -> None:
    root = box.make_root(tmp_path / "root")
    (root / "var/lib/store/big").write_bytes(b"y" * (32 << 20))
    base = new_base(box.SITE, root)
    with host.launch(base) as instance:
        assert instance.statistics().storage_bytes < 1 << 20
        sh(instance, "dd if=/dev/zero of=/var/lib/store/big bs=1M count=2 seek=4 conv=notrunc && sync")
        assert 2 << 20 <= instance.statistics().storage_bytes < 4 << 20


def test_changes_and_statistics_of_an_instance_that_writes_meanwhile_do_not_fail(instance: Instance) -> None:
    churn = "while :; do mkdir -p /opt/a/b/c; touch /opt/a/b/c/f; rm -r /opt/a; echo >/var/lib/store/n; rm /var/lib/store/n; done"
    busy = threading.Thread(target=lambda: instance.exec(["/bin/sh", "-c", churn]), daemon=True)
    busy.start()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        instance.changes()
        instance.statistics()
    instance.reset()
    busy.join(10)
    assert not busy.is_alive()


# services


def services(text: str, ready: str = 'http = "/"') -> str:
    return f'name = "several"\nport = 80\n{text}\n[ready]\n{ready}\ntimeout_s = 20\n'


def test_services_start_in_order_each_once_the_one_before_is_there(host: Host, new_base: NewBase) -> None:
    base = new_base(
        services(
            """
            [[services]]
            name = "prepare"
            command = ["/bin/sh", "-c", "sleep 0.2; echo prepared >/tmp/order"]
            run = "once"
            [[services]]
            name = "tcp"
            command = ["/bin/sh", "-c", "sleep 0.5; echo tcp >>/tmp/order; exec nc -ll -p 700 -e /bin/true"]
            wait = { tcp = 700, timeout_s = 20 }
            [[services]]
            name = "path"
            command = ["/bin/sh", "-c", "sleep 0.5; echo path >>/tmp/order; touch /run/there; exec sleep 1000"]
            wait = { path = "/run/there", timeout_s = 20 }
            [[services]]
            name = "unix"
            command = ["/usr/bin/python3", "-ISs", "-c", '''
import socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind("/run/socket")
time.sleep(0.2)
open("/tmp/order", "a").write("unix\\\\n")
listener.listen()
time.sleep(1000)
''']
            wait = { unix = "/run/socket", timeout_s = 20 }
            [[services]]
            name = "web"
            command = ["/bin/sh", "-c", "echo web >>/tmp/order; exec httpd -f -p 80 -h /srv/www"]
            [[mounts]]
            source = "/usr"
            target = "/usr"
            """.replace("\\\\n", "\\n")
        )
    )
    with host.launch(base) as instance:
        assert sh(instance, "cat /tmp/order") == "prepared\ntcp\npath\nunix\nweb\n"


def test_services_have_user_directory_and_environment_of_their_own(host: Host, new_base: NewBase) -> None:
    script = "id -u; pwd; echo $A; umask; touch /tmp/up; exec sleep 1000"
    base = new_base(
        services(
            f"""
            [[services]]
            name = "one"
            command = ["/bin/sh", "-c", "{script}"]
            user = "visitor"
            directory = "/opt/tree"
            environment = {{ A = "b" }}
            """,
            ready='command = ["/bin/test", "-e", "/tmp/up"]',
        )
    )
    with host.launch(base) as instance:
        assert instance.logs("one") == "1000\n/opt/tree\nb\n0022\n"


@pytest.mark.parametrize(
    ("service", "complaints"),
    [
        pytest.param(
            """
            [[services]]
            name = "web"
            command = ["/bin/sh", "-c", "echo the reason; exit 3"]
            """,
            ["all its services have ended", "the reason", "web exited with status 3"],
            id="service-exits",
        ),
        pytest.param(
            """
            [[services]]
            name = "prepare"
            command = ["/bin/sh", "-c", "echo cannot prepare; exit 1"]
            run = "once"
            [[services]]
            name = "web"
            command = ["/bin/sleep", "1000"]
            """,
            ["all its services have ended", "cannot prepare", "prepare exited with status 1"],
            id="once-fails",
        ),
        pytest.param(
            """
            [[services]]
            name = "db"
            command = ["/bin/sleep", "1000"]
            wait = { tcp = 3306, timeout_s = 0.3 }
            [[services]]
            name = "web"
            command = ["/bin/sleep", "1000"]
            """,
            ["all its services have ended", "db: no TCP port 3306 after 300 ms"],
            id="never-there",
        ),
        pytest.param(
            """
            [[services]]
            name = "web"
            command = ["/no/such/program"]
            """,
            ["all its services have ended", "cannot start web: /no/such/program: No such file or directory"],
            id="program-missing",
        ),
    ],
)
def test_launch_of_a_failing_site_says_why_with_the_ends_of_the_logs(
    host: Host, new_base: NewBase, service: str, complaints: list[str]
) -> None:
    base = new_base(services(service))
    began = time.monotonic()
    with pytest.raises(NotReady) as caught:
        host.launch(base)
    assert time.monotonic() - began < 10
    for complaint in complaints:
        assert complaint in str(caught.value)
    assert host.instances() == []


@pytest.mark.parametrize(
    ("command", "ready", "complaint"),
    [
        ('["/bin/sleep", "1000"]', 'http = "/"', "port 80: connection refused"),
        ('["/bin/sleep", "1000"]', "tcp = 81", "port 81: connection refused"),
        (box.WEB, 'http = "/nothing"', "GET /nothing: status 404, not 200"),
        (box.WEB, 'http = "/"\ncontains = "absent"', "GET /: the page does not contain 'absent'"),
        (box.WEB, 'command = ["/bin/false"]', "/bin/false exits with 1"),
        ('["nc", "-ll", "-p", "80", "-e", "/bin/sleep", "1000"]', 'http = "/"', "GET /: timed out"),
        (box.WEB, 'command = ["/bin/sleep", "1000"]', "/bin/sleep did not end"),
    ],
)
def test_site_that_never_gets_ready_times_out_with_its_last_answer(
    host: Host, new_base: NewBase, command: str, ready: str, complaint: str
) -> None:
    base = new_base(
        f'name = "never"\nport = 80\n[[services]]\nname = "s"\ncommand = {command}\n[ready]\n{ready}\ntimeout_s = 0.5\n'
    )
    instance = host.create(base)
    began = time.monotonic()
    with pytest.raises(NotReady) as caught:
        instance.launch()
    assert 0.4 < time.monotonic() - began < 8
    assert f"never did not get ready within 0.5 s: {complaint}" in str(caught.value)
    assert instance.state == "failed"
    with pytest.raises(WebservError, match="is failed: start or reset it first"):
        instance.exec(["/bin/true"])


def test_failed_launch_leaves_an_instance_that_can_be_launched_again(host: Host, new_base: NewBase) -> None:
    base = new_base(services('[[services]]\nname = "s"\ncommand = ["/bin/false"]'))
    instance = host.create(base)
    for _ in range(2):
        with pytest.raises(NotReady):
            instance.launch()
    with pytest.raises(NotReady):
        instance.reset()


def test_entrypoint_that_insists_on_being_pid_1_is_pid_1(host: Host, new_base: NewBase) -> None:
    script = "test $$ = 1 || exit 9; echo i am $$; (sleep 0.1; sleep 1000) & exec httpd -f -p 80 -h /srv/www"
    base = new_base(
        f'name = "own"\nport = 80\n[stop]\ntimeout_s = 0.2\n[entrypoint]\npid1 = true\ncommand = ["/bin/sh", "-c", "{script}"]\n[ready]\nhttp = "/"\n'
    )
    with host.launch(base) as instance:
        assert sh(instance, "cat /proc/1/comm").strip() == "httpd"
        assert instance.logs("entrypoint") == "i am 1\n"
        instance.reset()
        assert get(instance) == (200, box.PAGE)
        instance.stop()


def test_entrypoint_without_pid_1_runs_under_ours_which_reaps_orphans(host: Host, new_base: NewBase) -> None:
    base = new_base(f'name = "own"\nport = 80\n[entrypoint]\ncommand = {box.WEB}\n[ready]\nhttp = "/"\n')
    with host.launch(base) as instance:
        assert sh(instance, "cat /proc/1/comm").strip() == "wsrt-init"
        for _ in range(5):
            instance.exec(["/bin/sh", "-c", "(sleep 0.01 &) ; exit 0"])
        time.sleep(0.2)
        assert " Z" not in sh(instance, "ps -o stat,comm")


def test_images_own_entrypoint_command_environment_directory_and_user_are_used(
    host: Host, toolbox_root: Path, tmp_path: Path
) -> None:
    archive = box.make_docker_archive(
        toolbox_root,
        tmp_path / "image.tar",
        {
            "Entrypoint": [
                "/bin/sh",
                "-c",
                'echo "$0 $FROM_IMAGE $PWD $(id -u)"; exec httpd -f -p 8080 -h /srv/www',
            ],
            "Cmd": ["argument"],
            "Env": ["PATH=/bin", "FROM_IMAGE=yes"],
            "WorkingDir": "/opt/tree",
            "User": "visitor",
            "ExposedPorts": {"8080/tcp": {}},
        },
    )
    host.import_base(str(archive), "image")
    try:
        with host.launch("image") as instance:
            assert instance.logs("entrypoint") == "argument yes /opt/tree 1000\n"
            assert get(instance) == (200, box.PAGE)
    finally:
        host.remove_base("image")


# reset under use


def test_base_with_running_instances_is_not_removed(host: Host, instance: Instance) -> None:
    with pytest.raises(WebservError, match="base toolbox has running instances"):
        host.remove_base("toolbox")
    assert get(instance) == (200, box.PAGE)


def test_python_of_the_host_runs_inside(instance: Instance) -> None:
    assert python(instance, "import sys; print(sys.platform)").stdout == b"linux\n"
