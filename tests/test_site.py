"""A bad site spec is refused with file, line and key; a good one is completed from the image."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from webserv_rt.errors import WebservError
from webserv_rt.recipe import load_recipe
from webserv_rt.resolved_site import DEFAULT_PATH, ResolvedSite, resolve
from webserv_rt.site import Ready, SiteSpec, load_site
from webserv_rt.storage.image_config import ImageConfig
from webserv_rt.toml_model import SpecError

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
MINIMAL = 'name = "shop"\nport = 80\n'
SERVICE = '[[services]]\nname = "web"\ncommand = ["/bin/web"]\n'

Load = Callable[[str], SiteSpec]
Complaints = Callable[[str], str]


def image(**config: object) -> ImageConfig:
    return ImageConfig.from_oci(config)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str) -> SiteSpec:
        path = tmp_path / "site.toml"
        path.write_bytes(text.encode("latin-1"))
        return load_site(path)

    return load_text


@pytest.fixture
def complaints(tmp_path: Path, load: Load) -> Complaints:
    """Return the text of the error that a spec causes, without the directory of the file."""

    def complain(text: str) -> str:
        with pytest.raises(SpecError) as caught:
            load(text)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return complain


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*/site.toml")), ids=lambda path: path.parent.name)
def test_shipped_site_is_valid_and_complete(path: Path) -> None:
    site = resolve(load_site(path), None, {"venv": "/opt/venv"})
    assert site.name == path.parent.name


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*/recipe.toml")), ids=lambda path: path.parent.name)
def test_shipped_recipe_is_valid(path: Path) -> None:
    load_recipe(path.parent)


def test_defaults_are_those_of_the_reference(load: Load) -> None:
    spec = load('name = "shop"')
    assert (spec.profile, spec.hosts, spec.port, spec.egress, spec.ready) == ("php", None, None, "none", None)
    assert (spec.services, spec.warm, spec.data, spec.mounts, spec.stop.timeout_s) == ((), (), (), (), 10)


def test_spec_is_unchangeable(load: Load) -> None:
    spec = load(MINIMAL)
    with pytest.raises(ValidationError, match="frozen"):
        spec.port = 81


def test_all_errors_are_listed_at_once_in_the_order_of_lines(complaints: Complaints) -> None:
    text = """\
name = "shop"
hosts = ["shop.test", "http://x"]
prot = 80

[[services]]
name = "web"
command = ["web"]

[[services]]
name = "db"
command = "mariadbd"
wait.tcp = "abc"

[ready]
http = "index"
"""
    assert complaints(text).splitlines() == [
        'site.toml:2: hosts[1]: must be a DNS name without scheme, port or final dot, got "http://x"',
        'site.toml:3: prot: unknown key; did you mean "port"?',
        'site.toml:11: services[1].command: must be an array, got "mariadbd"',
        'site.toml:12: services[1].wait.tcp: must be a port (1..65535), got "abc"',
        'site.toml:15: ready.http: must start with "/"; '
        'blanks, "#" and non-ASCII are percent-encoded; got "index"',
    ]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("name = \n", "site.toml:1:8: not valid TOML: Invalid value"),
        ('name = "a"\nports = [80', "site.toml:2:12: not valid TOML: Unclosed array"),
        ('name = "a"\nname = "b"\n', "site.toml:2:11: not valid TOML: Cannot overwrite a value"),
        ('name = "a"\r\nx = \r\n', "site.toml:2:5: not valid TOML: Invalid value"),
        ('name = "a"\n# \xff', "site.toml:2:3: not UTF-8 text"),
        ("", "site.toml:1: name: is required"),
    ],
)
def test_text_that_is_not_toml_is_refused_with_line_and_column(
    complaints: Complaints, text: str, answer: str
) -> None:
    assert complaints(text) == answer


def test_absurdly_deep_nesting_is_refused(complaints: Complaints) -> None:
    assert complaints("a = " + "[" * 100_000).startswith("site.toml: nested too deeply")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.toml: cannot be read: No such file or directory"):
        load_site(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ('profil = "php"', 'profil: unknown key; did you mean "profile"?'),
        ("zzz = 1", "zzz: unknown key; known are data, egress, entrypoint, hosts, mounts, name, "),
        ('"odd key" = 1', '"odd key": unknown key'),
        ('stop.signl = "TERM"', 'stop.signl: unknown key; did you mean "signal"?'),
        ('profile = "../x"', 'profile: must be lower-case letters, digits and "-"'),
        ("profile = 1", "profile: must be a string, got 1"),
        ("hosts = []", "hosts: must not be empty"),
        ('hosts = ["a.test", "A.Test"]', 'hosts[1]: "a.test" is listed already, as [0]'),
        ('hosts = ["127.0.0.1"]', 'hosts[0]: must be a DNS name without scheme, port or final dot, got "127'),
        ('hosts = ["a_b.test"]', "hosts[0]: must be a DNS name"),
        ('hosts = ["a.test."]', "hosts[0]: must be a DNS name"),
        ('hosts = ["-a.test"]', "hosts[0]: must be a DNS name"),
        ('hosts = ["a\\n.test"]', "hosts[0]: must be a DNS name"),
        ('hosts = ["a.test\\n"]', "hosts[0]: must be a DNS name"),
        ("ports = [8080]", "ports: must contain port (80), got [8080]"),
        ("ports = [80, 80]", "ports[1]: 80 is listed already, as [0]"),
        ("ports = [80, 0]", "ports[1]: must be a port (1..65535), got 0"),
        ("ports = [80, 65536]", "ports[1]: must be a port (1..65535), got 65536"),
        ("ports = [80, true]", "ports[1]: must be a port (1..65535), got true"),
        ("ports = [80, 81.0]", "ports[1]: must be a port (1..65535), got 81.0"),
        ("ports = 80", "ports: must be an array, got 80"),
        ('egress = "all"', 'egress: must be "none": nothing else is supported yet, got "all"'),
        ("services = 3", "services: must be an array, got 3"),
        ("services = [3]", "services[0]: must be a table, got 3"),
        ("stop = 3", "stop: must be a table, got 3"),
        ("stop.timeout_s = 0", "stop.timeout_s: must be seconds (more than 0, at most 86400), got 0"),
        ("stop.timeout_s = nan", "stop.timeout_s: must be seconds"),
        ("stop.timeout_s = inf", "stop.timeout_s: must be seconds"),
        ("stop.timeout_s = true", "stop.timeout_s: must be seconds"),
        (
            "stop.timeout_s = 1979-05-27",
            'stop.timeout_s: must be seconds (more than 0, at most 86400), got "1979',
        ),
        (
            'stop.signal = "TREM"',
            'stop.signal: must be the name of a signal, such as "TERM" or "QUIT", got "TREM"',
        ),
        ('stop.signal = "_DFL"', "stop.signal: must be the name of a signal"),
        ('stop.signal = "RTMIN+99"', "stop.signal: must be the name of a signal"),
        ("[ready]", "ready: must have exactly one of http, tcp, command, has none"),
        (
            'ready = { http = "/", tcp = 80 }',
            "ready: must have exactly one of http, tcp, command, has http and tcp",
        ),
        ("ready = { tcp = 80, status = 404 }", "ready: status and contains belong to an http probe"),
        ('ready = { tcp = 80, contains = "x" }', "ready: status and contains belong to an http probe"),
        ('ready = { http = "/ HTTP/1.1\\r\\nX: y" }', 'ready.http: must start with "/"'),
        ('ready = { http = "/\u00e9" }'.encode().decode("latin-1"), 'ready.http: must start with "/"'),
        ('ready = { http = "/", status = 99 }', "ready.status: must be an HTTP status (100..599), got 99"),
        (
            'warm = [{ path = "/", method = "get" }]',
            'warm[0].method: must be "GET", "HEAD" or "POST", got "get"',
        ),
        ("data = [{}]", "data[0].path: is required"),
        ('data = [{ path = "var" }]', 'data[0].path: must be an absolute path, got "var"'),
        (
            'data = [{ path = "/a/../b" }]',
            'data[0].path: must be a path without ".", "..", "//" and final "/"',
        ),
        ('data = [{ path = "/a/" }]', 'data[0].path: must be a path without ".", "..", "//" and final "/"'),
        ('data = [{ path = "//a" }]', 'data[0].path: must be a path without ".", "..", "//" and final "/"'),
        ('data = [{ path = "/a\\u0000" }]', "data[0].path: must not contain NUL characters"),
        ('data = [{ path = "/" }]', "data[0].path: must lie below / and outside /proc, /sys and /dev"),
        ('data = [{ path = "/dev/shm" }]', "data[0].path: must lie below / and outside /proc, /sys and /dev"),
        ('data = [{ path = "/a" }, { path = "/a/b" }]', 'data[1].path: "/a/b" lies inside data[0]'),
        ('data = [{ path = "/a/b" }, { path = "/a" }]', 'data[0].path: "/a/b" lies inside data[1]'),
        ('data = [{ path = "/a" }, { path = "/a" }]', 'data[1].path: "/a" is already data[0]'),
        (
            'data = [{ path = "/a", mode = "copy" }]',
            'data[0].mode: must be "reflink" or "overlay", got "copy"',
        ),
        ('data = [{ path = "/a", database = "db2" }]', 'data[0].database: must be "mariadb" or "postgresql"'),
        ('mounts = [{ source = "{VENV}", target = "/a" }]', "mounts[0].source: must be an absolute path"),
        ('mounts = [{ source = "{venv}/../x", target = "/a" }]', "mounts[0].source: must be a path without"),
        ('mounts = [{ source = "/a", target = "/proc/x" }]', "mounts[0].target: must lie below /"),
        (
            'mounts = [{ source = "/a", target = "/t" }, { source = "/b", target = "/t" }]',
            'mounts[1].target: "/t" is already the target of mounts[0]',
        ),
        (
            'data = [{ path = "/srv/db" }]\nmounts = [{ source = "/a", target = "/srv" }]',
            'mounts[0].target: "/srv" would hide data[0]',
        ),
    ],
)
def test_bad_value_is_refused_with_what_it_must_be(complaints: Complaints, line: str, answer: str) -> None:
    expected_line = 2 + len(line.splitlines())
    (complaint,) = complaints(f"{MINIMAL}{line}").splitlines()
    assert complaint.startswith(f"site.toml:{expected_line}: {answer}")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ('user = "a b"', 'services[0].user: must be "USER" or "USER:GROUP", names or numbers, got "a b"'),
        ('user = "a:"', "services[0].user: must be"),
        ('user = ""', "services[0].user: must be"),
        ('directory = "srv"', "services[0].directory: must be an absolute path"),
        ('run = "never"', 'services[0].run: must be "always" or "once", got "never"'),
        ("environment = { A = 1 }", "services[0].environment.A: must be a string, got 1"),
        ('environment = { "A-B" = "" }', "services[0].environment.A-B: must be named with letters, digits"),
        ('environment = { "=" = "" }', 'services[0].environment."=": must be named with letters, digits'),
        ('environment = { A = "\\u0000" }', "services[0].environment.A: must not contain NUL characters"),
        ("wait = {}", "services[0].wait: must have exactly one of tcp, unix, path, has none"),
        (
            'wait = { tcp = 1, path = "/x" }',
            "services[0].wait: must have exactly one of tcp, unix, path, has tcp",
        ),
        ('wait = { unix = "x" }', "services[0].wait.unix: must be an absolute path"),
        (f'wait = {{ unix = "/{"x" * 107}" }}', "services[0].wait.unix: must be at most 107 bytes long"),
        ("wait = { tcp = 1, timeout_s = -1 }", "services[0].wait.timeout_s: must be seconds"),
        ("waits = 1", 'services[0].waits: unknown key; did you mean "wait"?'),
        (
            SERVICE.replace("\n", " # \n").strip(),
            'services[1].name: "web" is already the name of services[0]',
        ),
    ],
)
def test_bad_service_is_refused_with_what_it_must_be(complaints: Complaints, line: str, answer: str) -> None:
    (complaint,) = complaints(f"{MINIMAL}{SERVICE}{line}").splitlines()
    assert complaint.split(": ", 1)[1].startswith(answer)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "-x", "a b", "a\\n", "x" * 65])
def test_service_name_that_is_no_safe_file_name_is_refused(complaints: Complaints, name: str) -> None:
    text = f'{MINIMAL}[[services]]\nname = "{name}"\ncommand = ["x"]'
    assert complaints(text).startswith(
        'site.toml:4: services[0].name: must be letters, digits, ".", "_" and "-"'
    )


@pytest.mark.parametrize("command", ["[]", '[""]', '["", "x"]'])
def test_command_without_a_program_is_refused(complaints: Complaints, command: str) -> None:
    text = f"{MINIMAL}[entrypoint]\ncommand = {command}"
    assert complaints(text).startswith("site.toml:4: entrypoint.command: must name a program first")


def test_services_beside_an_entrypoint_are_refused(complaints: Complaints) -> None:
    answer = "site.toml:6: entrypoint: stands instead of [[services]]: keep one of the two"
    assert complaints(f"{MINIMAL}{SERVICE}[entrypoint]\n") == answer


def test_host_names_are_made_lower_case(load: Load) -> None:
    assert load('name = "shop"\nhosts = ["Shop.TEST"]').hosts == ("shop.test",)


def test_error_survives_pickling(load: Load) -> None:
    with pytest.raises(WebservError) as caught:
        load("")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_image_alone_says_how_to_run(load: Load) -> None:
    site = resolve(
        load('name = "blog"'),
        image(
            Entrypoint=["/entry.sh"],
            Cmd=["apache2"],
            Env=["PATH=/bin", "LANG=C.UTF-8"],
            WorkingDir="srv",
            User="www-data",
            ExposedPorts={"8080/tcp": {}, "8080/udp": {}},
            StopSignal="SIGWINCH",
        ),
    )
    (service,) = site.services
    assert (service.name, service.command, service.user) == (
        "entrypoint",
        ("/entry.sh", "apache2"),
        "www-data",
    )
    assert (service.directory, service.environment) == ("/srv", {"PATH": "/bin", "LANG": "C.UTF-8"})
    assert (site.hosts, site.port, site.ports, site.ready) == (("blog.test",), 8080, (8080,), Ready(tcp=8080))
    assert (site.stop_signal, site.is_pid1) == (28, False)


def test_spec_wins_over_the_image(load: Load) -> None:
    spec = load("""\
name = "blog"
port = 3
[entrypoint]
command = ["/other"]
pid1 = true
user = "0:0"
directory = "/"
environment = { B = "2" }
[stop]
signal = "SIGQUIT"
""")
    site = resolve(
        spec,
        image(
            Entrypoint=["/entry.sh"],
            Cmd=["a"],
            Env=["A=1", "B=1"],
            WorkingDir="/srv",
            User="nobody",
            ExposedPorts={"1/tcp": {}, "2/tcp": {}},
            StopSignal="SIGKILL",
        ),
    )
    (service,) = site.services
    assert (service.command, service.user, service.directory) == (("/other",), "0:0", "/")
    assert service.environment == {"PATH": DEFAULT_PATH, "A": "1", "B": "2"}
    assert (site.port, site.ports, site.stop_signal, site.is_pid1) == (3, (3,), 3, True)


def test_services_are_root_and_take_environment_and_directory_of_the_image(load: Load) -> None:
    config = image(Entrypoint=["/x"], Env=["A=1"], WorkingDir="/srv", User="nobody")
    site = resolve(load(MINIMAL + SERVICE), config)
    (service,) = site.services
    assert (service.command, service.user, service.directory) == (("/bin/web",), "root", "/srv")
    assert service.environment == {"PATH": DEFAULT_PATH, "A": "1"}
    assert site.stop_signal == 15


def test_everything_that_neither_spec_nor_image_says_is_asked_for(load: Load) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(load('name = "blog"'), image(StopSignal="SIGNONSENSE"))
    assert [str(problem) for problem in caught.value.problems] == [
        "site blog: services: nothing tells how to run it (the image has neither Entrypoint nor Cmd); "
        "add them, or entrypoint.command",
        "site blog: port: nothing tells on which port the site listens: add port = ...",
        "site blog: stop.signal: the image's StopSignal must be the name of a signal, "
        'such as "TERM" or "QUIT", got "NONSENSE"',
    ]


def test_several_exposed_ports_need_a_choice(load: Load) -> None:
    with pytest.raises(SpecError, match="port: say which of 80, 443 is the site's own"):
        resolve(
            load('name = "blog"'), image(Cmd=["/x"], ExposedPorts={"443": {}, "80/tcp": {}, "53/udp": {}})
        )


def test_the_only_one_of_ports_is_the_port(load: Load) -> None:
    assert resolve(load(f'name = "blog"\nports = [81]\n{SERVICE}'), None).port == 81


def test_placeholder_in_a_mount_source_is_replaced(load: Load) -> None:
    spec = load(f'{MINIMAL}mounts = [{{ source = "{{venv}}/bin", target = "/v" }}]\n{SERVICE}')
    assert resolve(spec, None, {"venv": "/opt/venv/"}).mounts[0].source == "/opt/venv/bin"
    with pytest.raises(SpecError, match=r"mounts\[0\].source: unknown placeholder {venv}, known: {recipe}"):
        resolve(spec, None, {"recipe": "/r"})


@pytest.mark.parametrize(("name", "number"), [("TERM", 15), ("SIGINT", 2), ("RTMIN+3", 37), ("9", 9)])
def test_signal_is_known_by_name_and_number(load: Load, name: str, number: int) -> None:
    spec = load(f'{MINIMAL}stop.signal = "{name}"\n{SERVICE}')
    assert resolve(spec, None).stop_signal == number


def test_resolved_site_survives_json(load: Load) -> None:
    site = resolve(
        load(f'{MINIMAL}ready.http = "/"\ndata = [{{ path = "/db" }}]\n{SERVICE}wait.tcp = 1'), None
    )
    assert ResolvedSite.model_validate_json(site.model_dump_json()) == site


def test_spec_survives_json(load: Load) -> None:
    spec = load(f'{MINIMAL}ready.http = "/"\ndata = [{{ path = "/db" }}]\n{SERVICE}wait.tcp = 1')
    assert SiteSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('packages = ["nginx", "nginx"]', '1: packages[1]: "nginx" is listed already, as [0]'),
        ('packages = ["a;b"]', '1: packages[0]: must be the name of a Debian package, got "a;b"'),
        ('packages = ["--x"]', '1: packages[0]: must be the name of a Debian package, got "--x"'),
        ('setup = "../x.sh"', '1: setup: must be the name of a file beside recipe.toml, got "../x.sh"'),
        ('\nstep = "x.sh"', '2: step: unknown key; did you mean "setup"?'),
    ],
)
def test_bad_recipe_is_refused(tmp_path: Path, text: str, answer: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_recipe(tmp_path)
    assert str(caught.value) == f"{tmp_path}/recipe.toml:{answer}"


def test_recipe_whose_setup_script_is_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('setup = "setup.sh"')
    with pytest.raises(SpecError, match=r"setup: there is no file .*/setup\.sh"):
        load_recipe(tmp_path)
