"""The WordPress recipe in the real runtime: what the site shows, that it works, that nothing is stale."""

from __future__ import annotations

import http.client
import json
import re
import struct
import urllib.parse
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from webserv_rt import Host, Instance
from webserv_rt.build import build
from webserv_rt.host import default_pool
from webserv_rt.recipe import RECIPES
from webserv_rt.storage.cleanliness import prove_mariadb_clean
from webserv_rt.storage.pool import Pool
from webserv_rt.storage.pool_errors import PoolNotFound

pytestmark = [pytest.mark.site, pytest.mark.timeout(900)]

POOL_BYTES = 32 << 30
PRINTED_TITLE = "Harbour Notes"
N_POSTS_ON_FRONT_PAGE = 10
NEW_TITLE = "The new crane has arrived"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Visitor:
    """A client with a session of its own; the site is asked for by its canonical name."""

    def __init__(self, instance: Instance) -> None:
        self._port = instance.port
        self._session = {"Host": "wordpress.test"}

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, self._session | named)
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def log_in(self, name: str, password: str) -> None:
        form = urllib.parse.urlencode({"log": name, "pwd": password, "testcookie": "1"}).encode()
        form_type = "application/x-www-form-urlencoded"
        cookie = "wordpress_test_cookie=WP%20Cookie%20check"
        answer = self.ask("POST", "/wp-login.php", form, Content_Type=form_type, Cookie=cookie)
        assert answer.status == 302, answer.text
        cookies = [value.split(";")[0] for key, value in answer.headers if key == "Set-Cookie"]
        self._session["Cookie"] = "; ".join(cookies)
        nonce = self.get("/wp-admin/admin-ajax.php?action=rest-nonce").text
        assert re.fullmatch("[0-9a-f]{10}", nonce)
        self._session["X-WP-Nonce"] = nonce

    def create(self, kind: str, content: bytes, **headers: str) -> dict[str, object]:
        answer = self.ask("POST", f"/wp-json/wp/v2/{kind}", content, **headers)
        assert answer.status == 201, answer.text
        created: dict[str, object] = json.loads(answer.body)
        return created

    def publish(self, title: str) -> None:
        post = json.dumps({"title": title, "status": "publish"}).encode()
        self.create("posts", post, Content_Type="application/json")


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """A host on the default pool, where the base stays for the next run."""
    path = default_pool()
    try:
        Pool.open(path).close()
    except PoolNotFound:
        Pool.create(path, size_bytes=POOL_BYTES).close()
    with Host(path) as host:
        build(host, RECIPES / "wordpress")
        yield host


@pytest.fixture(scope="module")
def shared_instance(host: Host) -> Iterator[Instance]:
    with host.launch("wordpress", strategy="cold") as instance:
        yield instance


@pytest.fixture
def instance(shared_instance: Instance) -> Instance:
    shared_instance.reset()
    return shared_instance


@pytest.fixture
def guest(instance: Instance) -> Visitor:
    return Visitor(instance)


@pytest.fixture
def admin(instance: Instance) -> Visitor:
    visitor = Visitor(instance)
    visitor.log_in("admin", "admin")
    return visitor


def sql(instance: Instance, statement: str) -> str:
    result = instance.exec(["/usr/bin/mariadb", "--skip-column-names", "wordpress", "-e", statement])
    assert result.status == 0, result.stderr
    return result.stdout.decode().strip()


def png(width: int, height: int) -> bytes:
    """Return a grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_site_has_the_content_that_its_readme_names(instance: Instance, guest: Visitor) -> None:
    front = guest.get("/")
    assert front.status == 200
    assert PRINTED_TITLE in front.text
    assert len(re.findall(r"<h2[^>]*wp-block-post-title", front.text)) == N_POSTS_ON_FRONT_PAGE
    published = "SELECT COUNT(*) FROM wp_posts WHERE post_status = 'publish' AND post_type = "
    assert [sql(instance, published + kind) for kind in ("'post'", "'page'")] == ["25", "4"]
    assert [sql(instance, f"SELECT COUNT(*) FROM wp_{t}") for t in ("users", "comments")] == ["25", "18"]


def test_base_is_sealed_with_a_cleanly_stopped_database(host: Host) -> None:
    prove_mariadb_clean(host.base("wordpress").root / "var/lib/mysql")


def test_only_who_is_logged_in_sees_the_admin_bar(guest: Visitor, admin: Visitor) -> None:
    assert 'id="wpadminbar"' in admin.get("/").text
    assert 'id="wpadminbar"' not in guest.get("/").text


def test_published_post_is_on_the_front_page_at_once(guest: Visitor, admin: Visitor) -> None:
    assert [NEW_TITLE in guest.get("/").text for _ in range(3)] == [False] * 3
    admin.publish(NEW_TITLE)
    assert NEW_TITLE in guest.get("/").text


def test_row_changed_by_sql_shows_at_once(instance: Instance, guest: Visitor) -> None:
    assert [guest.get("/").status for _ in range(3)] == [200] * 3
    sql(
        instance,
        f"UPDATE wp_posts SET post_title = '{NEW_TITLE}' WHERE post_name = 'notes-on-the-bird-island'",
    )
    assert NEW_TITLE in guest.get("/notes-on-the-bird-island/").text
    assert NEW_TITLE in guest.get("/").text


def test_picture_can_be_uploaded_and_is_scaled(guest: Visitor, admin: Visitor) -> None:
    disposition = 'attachment; filename="crane.png"'
    media = admin.create("media", png(800, 600), Content_Type="image/png", Content_Disposition=disposition)
    details = media["media_details"]
    assert isinstance(details, dict)
    small = urllib.parse.urlsplit(details["sizes"]["medium"]["source_url"])
    picture = guest.get(small.path)
    assert picture.status == 200
    assert struct.unpack(">II", picture.body[16:24]) == (300, 225)


def test_reset_forgets_what_was_published(instance: Instance, admin: Visitor) -> None:
    admin.publish(NEW_TITLE)
    instance.reset()
    assert NEW_TITLE not in Visitor(instance).get("/").text
    assert sql(instance, "SELECT COUNT(*) FROM wp_posts WHERE post_type = 'post'") == "25"


def test_spare_answers_its_first_guest(host: Host) -> None:
    with host.launch("wordpress", strategy="standby") as instance:
        host.await_spares("wordpress")
        instance.reset()
        front = Visitor(instance).get("/")
    assert front.status == 200
    assert PRINTED_TITLE in front.text
