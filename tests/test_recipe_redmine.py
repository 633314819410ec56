"""The Redmine recipe in the real runtime: what the site shows, that it works, that a reset forgets it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from webserv_rt import Host, Instance
from webserv_rt.build import build
from webserv_rt.host import default_pool
from webserv_rt.recipe import RECIPES
from webserv_rt.storage.cleanliness import prove_postgresql_clean
from webserv_rt.storage.pool import Pool
from webserv_rt.storage.pool_errors import PoolNotFound

pytestmark = [pytest.mark.site, pytest.mark.timeout(900)]

POOL_BYTES = 32 << 30
SUBJECT = "The crane beeps at night"


def visitor(instance: Instance) -> httpx.Client:
    """Return a client with a session of its own; the site is asked for by its canonical name."""
    return httpx.Client(
        base_url=f"http://127.0.0.1:{instance.port}",
        headers={"Host": "redmine.test", "Connection": "close"},
        timeout=60,
    )


def token(page: httpx.Response) -> str:
    assert page.status_code == 200, page.text
    found = re.search(r'name="authenticity_token" value="([^"]+)"', page.text)
    assert found is not None, page.text
    return found[1]


def log_in(client: httpx.Client, name: str, password: str) -> None:
    form = {"authenticity_token": token(client.get("/login")), "username": name, "password": password}
    answer = client.post("/login", data=form)
    assert answer.headers.get("Location") == "http://redmine.test/my/page", answer.text


def report(client: httpx.Client, subject: str) -> str:
    """Report an issue with a file attached; return the issue's path."""
    page = client.get("/projects/storefront/issues/new")
    form = {
        "authenticity_token": token(page),
        "issue[tracker_id]": "1",
        "issue[status_id]": "1",
        "issue[priority_id]": re.findall(
            r'<option[^>]*selected="selected"[^>]* value="(\d+)">Normal<', page.text
        )[0],
        "issue[subject]": subject,
    }
    files = {"attachments[1][file]": ("crane.txt", b"beep\n", "text/plain")}
    answer = client.post("/projects/storefront/issues", data=form, files=files)
    assert answer.status_code == 302, answer.text
    return httpx.URL(answer.headers["Location"]).path


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """A host on the default pool, where the base stays for the next run."""
    path = default_pool()
    try:
        Pool.open(path).close()
    except PoolNotFound:
        Pool.create(path, size_bytes=POOL_BYTES).close()
    with Host(path) as host:
        build(host, RECIPES / "redmine")
        yield host


@pytest.fixture(scope="module")
def shared_instance(host: Host) -> Iterator[Instance]:
    with host.launch("redmine", strategy="cold") as instance:
        yield instance


@pytest.fixture
def instance(shared_instance: Instance) -> Instance:
    shared_instance.reset()
    return shared_instance


def sql(instance: Instance, statement: str) -> str:
    command = ["/usr/bin/psql", "-h", "/run/postgresql", "-U", "postgres", "-tAc", statement, "redmine"]
    result = instance.exec(command, user="postgres")
    assert result.status == 0, result.stderr
    return result.stdout.decode().strip()


def test_site_has_the_content_that_its_readme_names(instance: Instance) -> None:
    with visitor(instance) as guest:
        projects = guest.get("/projects").text
        issue = guest.get("/issues/1").text
    assert all(f'href="/projects/{name}"' in projects for name in ("storefront", "warehouse", "mobile-app"))
    assert "#1" in issue
    assert sql(instance, "SELECT COUNT(*) FROM issues") == "60"


def test_base_is_sealed_with_a_cleanly_stopped_database(host: Host) -> None:
    prove_postgresql_clean(host.base("redmine").root / "var/lib/postgresql/main")


def test_reported_issue_is_shown_with_its_file_and_forgotten_by_a_reset(instance: Instance) -> None:
    with visitor(instance) as anna:
        log_in(anna, "anna", "userpassword")
        path = report(anna, SUBJECT)
        assert SUBJECT in anna.get(path).text
    with visitor(instance) as guest:
        [attachment] = re.findall(r'href="(/attachments/download/\d+/crane\.txt)"', guest.get(path).text)
        assert guest.get(attachment).content == b"beep\n"
        instance.reset()
        assert guest.get(path).status_code == 404
        assert guest.get(attachment).status_code == 404


def test_wrong_password_is_refused(instance: Instance) -> None:
    with visitor(instance) as client:
        form = {"authenticity_token": token(client.get("/login")), "username": "anna", "password": "guess"}
        answer = client.post("/login", data=form)
    assert (answer.status_code, "Invalid user or password" in answer.text) == (200, True)


def test_spare_answers_its_first_guest(host: Host) -> None:
    with host.launch("redmine", strategy="standby") as instance:
        host.await_spares("redmine")
        instance.reset()
        with visitor(instance) as guest:
            front = guest.get("/")
    assert front.status_code == 200
    assert "Powered by" in front.text
