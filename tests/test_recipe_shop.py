"""The shop without the runtime: real processes on a copy of the recipe's root, used as visitors use them."""

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

RECIPE = Path(__file__).parent.parent / "recipes/shop"
ADDRESS = {
    "full_name": "Erin Vogel",
    "email": "erin@example.com",
    "street": "Mühlgasse 5",
    "postcode": "8010",
    "city": "Graz",
    "country": "Austria",
    "payment": "invoice",
}
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cf50f01f0005000201a0c3d9e40000000049454e44ae426082"
)
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


def run_build(program: Path, data: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-ES", str(program / "build.py")],
        env={"SHOP_DATA": str(data)},
        capture_output=True,
        text=True,
        check=False,
    )


def dump(data: Path) -> list[str]:
    connection = sqlite3.connect(data / "shop.sqlite3")
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def files(data: Path) -> dict[str, bytes]:
    media = data / "media"
    return {str(path.relative_to(media)): path.read_bytes() for path in media.rglob("*") if path.is_file()}


def texts(page: httpx.Response, testid: str) -> list[str]:
    """Give the text directly inside each element with that data-testid."""
    return [text.strip() for text in re.findall(rf'data-testid="{testid}"[^>]*>([^<]*)<', page.text)]


def text(page: httpx.Response, testid: str) -> str:
    found = texts(page, testid)
    assert len(found) == 1, f"{testid}: {found} in\n{page.text}"
    return found[0]


class Visitor(httpx.Client):
    """A browser without eyes: keeps cookies, follows redirects, sends forms with the token of their page."""

    def __init__(self, port: int) -> None:
        super().__init__(base_url=f"http://127.0.0.1:{port}", follow_redirects=True, timeout=20)

    def send_form(
        self, page: str, action: str, data: dict[str, Any], files: dict[str, Any] | None = None
    ) -> httpx.Response:
        token = TOKEN.search(self.get(page).raise_for_status().text)
        assert token is not None, f"no form on {page}"
        return self.post(action, data={**data, "csrfmiddlewaretoken": token[1]}, files=files)

    def log_in(self, name: str, password: str | None = None) -> httpx.Response:
        form = {"username": name, "password": password or f"{name}-lantern", "next": ""}
        return self.send_form("/account/login/", "/account/login/", form)

    def log_in_to_admin(self) -> httpx.Response:
        form = {"username": "admin", "password": "admin-lantern", "next": "/admin/"}
        return self.send_form("/admin/login/", "/admin/login/", form)

    def add(self, slug: str, quantity: int = 1) -> httpx.Response:
        return self.send_form(f"/product/{slug}/", f"/cart/{slug}/add/", {"quantity": str(quantity)})

    def check_out(self, **changed: str) -> httpx.Response:
        return self.send_form("/checkout/", "/checkout/", {**ADDRESS, **changed})

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.get("/api/state").raise_for_status().json()
        return state

    def stock(self, slug: str) -> int:
        products = self.get("/api/products").raise_for_status().json()["products"]
        return int(next(product["stock"] for product in products if product["slug"] == slug))


class Shop:
    """A running shop."""

    def __init__(self, program: Path, data: Path, log: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.data = data
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-ES", str(program / "serve.py")],
                env={"SHOP_DATA": str(data), "SHOP_PORT": str(self.port)},
                stdout=stderr,
                stderr=stderr,
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=10).raise_for_status()
                return
            except httpx.ConnectError:
                assert self.process.poll() is None, self.log()
                time.sleep(0.01)
        self.process.kill()
        raise AssertionError(f"the shop does not answer:\n{self.log()}")

    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=20)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shop") / "root"
    shutil.copytree(RECIPE / "root", root, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return root / "srv/shop"


@pytest.fixture(scope="module")
def built(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("built") / "data"
    data.mkdir()
    result = run_build(program, data)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return data


@pytest.fixture
def shop(program: Path, built: Path, tmp_path: Path) -> Iterator[Shop]:
    data = tmp_path / "data"
    shutil.copytree(built, data)
    running = Shop(program, data, tmp_path / "shop.log")
    yield running
    assert running.stop() == 0, running.log()
    assert "Internal Server Error" not in running.log()


@pytest.fixture
def visitor(shop: Shop) -> Iterator[Visitor]:
    with Visitor(shop.port) as client:
        yield client


# Building


def test_two_builds_give_the_same_database_and_the_same_files(
    program: Path, built: Path, tmp_path: Path
) -> None:
    again = tmp_path / "data"
    again.mkdir()
    assert run_build(program, again).returncode == 0
    assert dump(again) == dump(built)
    assert files(again) == files(built)
    assert len(files(again)) == 63


def test_build_over_an_existing_shop_is_refused_and_changes_nothing(
    program: Path, built: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(built, data)
    result = run_build(program, data)
    assert result.returncode == 1
    assert f"{data}/shop.sqlite3 exists already" in result.stderr
    assert dump(data) == dump(built)


def test_models_and_migrations_agree(program: Path, built: Path) -> None:
    check = "import bootstrap; bootstrap.add_virtual_environment(); import django; django.setup()\n"
    check += "from django.core.management import call_command as call\n"
    check += "call('check', fail_level='WARNING'); call('makemigrations', check=True, dry_run=True)"
    result = subprocess.run(
        [sys.executable, "-ES", "-c", check],
        cwd=program,
        env={"SHOP_DATA": str(built)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines() == [
        "System check identified no issues (0 silenced).",
        "No changes detected",
    ]


def test_interpreter_outside_a_virtual_environment_is_refused(program: Path, tmp_path: Path) -> None:
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    result = subprocess.run(
        [str(python), "-ES", str(program / "build.py")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert (
        "site-packages does not exist: start the shop with a virtual environment's python3" in result.stderr
    )


def test_virtual_environment_without_bytecode_is_refused(program: Path, tmp_path: Path) -> None:
    packages = tmp_path / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (packages / "django").mkdir(parents=True)
    (packages / "django/__init__.py").touch()
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    result = subprocess.run(
        [str(python), "-ES", str(program / "build.py")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert f"{packages} is not compiled; run python3 -m compileall -q on it" in result.stderr


# Serving


def test_requests_alone_change_nothing_on_disk(shop: Shop, built: Path, visitor: Visitor) -> None:
    for path in (
        "/healthz",
        "/",
        "/search/?q=tea",
        "/product/rag-bear/",
        "/cart/",
        "/api/state",
        "/admin/login/",
    ):
        assert visitor.get(path).status_code == 200
    assert (shop.data / "shop.sqlite3").read_bytes() == (built / "shop.sqlite3").read_bytes()
    assert sorted(path.name for path in shop.data.iterdir()) == ["media", "shop.sqlite3"]
    assert files(shop.data) == files(built)


def test_readiness_asks_the_database(shop: Shop, visitor: Visitor) -> None:
    assert visitor.get("/healthz").text == "ok\n"
    connection = sqlite3.connect(shop.data / "shop.sqlite3")
    with connection:
        connection.execute("DELETE FROM shop_product")
    connection.close()
    assert visitor.get("/healthz").status_code == 503


def test_shop_is_one_process_with_few_threads(shop: Shop) -> None:
    status = Path(f"/proc/{shop.process.pid}/status").read_text()
    children = Path(f"/proc/{shop.process.pid}/task/{shop.process.pid}/children").read_text()
    threads = re.search(r"^Threads:\s+(\d+)", status, re.MULTILINE)
    assert threads is not None
    assert int(threads[1]) <= 3
    assert children == ""


def test_taken_port_is_an_error_that_names_it(shop: Shop, program: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-ES", str(program / "serve.py")],
        env={"SHOP_DATA": str(shop.data), "SHOP_PORT": str(shop.port)},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert result.returncode == 1
    assert "Address already in use" in result.stderr


def test_any_host_name_and_port_is_served(visitor: Visitor) -> None:
    for host in ("shop.test", "127.0.0.1:20017", "shop.test:8080"):
        assert visitor.get("/", headers={"Host": host}).status_code == 200


def test_paths_that_leave_the_served_directories_are_refused(visitor: Visitor) -> None:
    for path in (
        "/media/../shop.sqlite3",
        "/media/%2e%2e/shop.sqlite3",
        "/static/%2e%2e/settings.py",
        "/static/admin//etc/passwd",
    ):
        assert visitor.get(path).status_code in (400, 404)


# Looking around


def test_front_page_leads_to_every_category_and_each_has_ten_products(visitor: Visitor) -> None:
    slugs = re.findall(r'data-testid="category" data-slug="([^"]+)"', visitor.get("/").text)
    assert slugs == ["kitchen", "garden", "books", "toys", "outdoors", "stationery"]
    for slug in slugs:
        page = visitor.get(f"/category/{slug}/")
        assert text(page, "result-count") == "10"
        assert len(texts(page, "product-name")) == 10


def test_pages_of_all_products_show_each_once_in_the_chosen_order(visitor: Visitor) -> None:
    prices: list[float] = []
    names: list[str] = []
    for number in range(1, 6):
        page = visitor.get("/search/", params={"sort": "-price", "page": number})
        names += texts(page, "product-name")
        prices += [float(price.removeprefix("€")) for price in texts(page, "product-price")]
    assert len(set(names)) == len(names) == 60
    assert prices == sorted(prices, reverse=True)


def test_search_finds_products_that_have_every_word(visitor: Visitor) -> None:
    assert texts(visitor.get("/search/", params={"q": "camp LANTERN"}), "product-name") == ["Camp Lantern"]
    nothing = visitor.get("/search/", params={"q": "camp submarine"})
    assert texts(nothing, "product-name") == []
    assert text(nothing, "no-results") == "Nothing found. Try another word."


def test_query_is_shown_as_text_and_never_as_markup(visitor: Visitor) -> None:
    page = visitor.get("/search/", params={"q": "<script>alert(1)</script>"})
    assert "<script>" not in page.text
    assert "&lt;script&gt;" in page.text


def test_every_product_has_a_page_and_a_picture(visitor: Visitor) -> None:
    products = visitor.get("/api/products").json()["products"]
    assert len(products) == 60
    for product in products:
        page = visitor.get(product["url"])
        assert text(page, "product-name") == product["name"].replace("'", "&#x27;")
        assert text(page, "product-price") == f"€{product['price']}"
        assert text(page, "stock") == str(product["stock"])
        picture = visitor.get(product["image"])
        assert picture.headers["content-type"] == "image/svg+xml"
        assert picture.text.startswith("<svg ")


def test_unknown_addresses_get_a_page_that_says_so(visitor: Visitor) -> None:
    for path in ("/product/submarine/", "/category/boats/", "/orders/1/", "/nowhere"):
        page = visitor.get(path)
        assert page.status_code == 404
        assert "There is nothing at this address" in page.text


# Cart and checkout


def test_order_takes_its_goods_from_stock_and_shows_number_address_and_total(visitor: Visitor) -> None:
    before = visitor.state()
    stock = visitor.stock("stoneware-mug")
    assert text(visitor.add("stoneware-mug", 2), "cart-count") == "2"
    page = visitor.check_out()
    assert page.url.path == "/orders/10009/"
    assert text(page, "order-number") == "10009"
    assert text(page, "order-total") == "€33.90"
    assert "Mühlgasse 5" in page.text
    assert text(page, "cart-count") == "0"
    after = visitor.state()
    assert visitor.stock("stoneware-mug") == stock - 2
    assert after["orders"] == before["orders"] + 1
    assert after["stock"] == before["stock"] - 2
    assert after["units_ordered"] == before["units_ordered"] + 2
    assert float(after["revenue"]) == pytest.approx(float(before["revenue"]) + 33.90)
    assert after["digest"] != before["digest"]


def test_shipping_is_free_from_sixty_euros(visitor: Visitor) -> None:
    visitor.add("stoneware-mug", 4)
    page = visitor.get("/cart/")
    assert (text(page, "goods"), text(page, "shipping"), text(page, "total")) == ("€58.00", "€4.90", "€62.90")
    page = visitor.add("wildflower-seeds")
    assert (text(page, "goods"), text(page, "shipping"), text(page, "total")) == ("€62.50", "free", "€62.50")


def test_cart_quantities_can_be_changed_and_lines_removed(visitor: Visitor) -> None:
    visitor.add("rag-bear")
    visitor.add("rubber-ball", 3)
    page = visitor.send_form("/cart/", "/cart/rubber-ball/change/", {"quantity": "5"})
    assert text(page, "cart-count") == "6"
    page = visitor.send_form("/cart/", "/cart/rag-bear/change/", {"quantity": "0"})
    assert re.findall(r'data-testid="cart-line" data-slug="([^"]+)"', page.text) == ["rubber-ball"]
    page = visitor.send_form("/cart/", "/cart/rubber-ball/change/", {"quantity": "0"})
    assert "cart-empty" in page.text


def test_cart_never_holds_more_than_there_is_in_stock(visitor: Visitor) -> None:
    page = visitor.add("copper-kettle", 9)
    assert text(page, "message") == "Only 5 of Copper Kettle left."
    assert text(page, "cart-count") == "5"
    assert "add-to-cart" not in visitor.get("/product/tulip-bulbs-box-of-25/").text


def test_quantity_that_is_no_number_is_refused_by_name(visitor: Visitor) -> None:
    page = visitor.send_form("/product/rag-bear/", "/cart/rag-bear/add/", {"quantity": "many"})
    assert text(page, "message") == "Quantity: Enter a whole number."
    assert text(page, "cart-count") == "0"


def test_incomplete_address_is_refused_field_by_field_and_nothing_is_ordered(visitor: Visitor) -> None:
    before = visitor.state()
    visitor.add("rag-bear")
    page = visitor.check_out(city="", email="nobody")
    assert page.status_code == 422
    assert text(page, "error-city") == "This field is required."
    assert text(page, "error-email") == "Enter a valid email address."
    assert visitor.state() == before


def test_checkout_with_an_empty_cart_leads_back_to_the_cart(visitor: Visitor) -> None:
    page = visitor.get("/checkout/")
    assert page.url.path == "/cart/"
    assert text(page, "message") == "Your cart is empty."


def test_last_piece_is_sold_once_however_many_check_out_together(shop: Shop, visitor: Visitor) -> None:
    visitors = [Visitor(shop.port) for _ in range(6)]
    for other in visitors:
        other.add("marble-run", 7)
    with ThreadPoolExecutor(len(visitors)) as pool:
        pages = list(pool.map(lambda other: other.check_out(), visitors))
    sold = [page for page in pages if page.url.path.startswith("/orders/")]
    others = [page for page in pages if page.url.path == "/cart/"]
    assert (len(sold), len(others)) == (1, 5)
    assert all("Only 0 of Marble Run left." in texts(page, "message") for page in others)
    assert visitor.stock("marble-run") == 0
    for other in visitors:
        other.close()


def test_order_with_one_product_sold_out_meanwhile_takes_nothing_from_the_others(
    shop: Shop, visitor: Visitor
) -> None:
    visitor.add("bird-house")
    visitor.add("marble-run")
    with Visitor(shop.port) as rival:
        rival.add("marble-run", 7)
        rival.check_out()
    before = visitor.state()
    page = visitor.check_out()
    assert page.url.path == "/cart/"
    assert text(page, "cart-count") == "2"
    assert visitor.state() == before


def test_order_is_shown_to_nobody_but_who_placed_it(shop: Shop, visitor: Visitor) -> None:
    visitor.add("rag-bear")
    path = visitor.check_out().url.path
    assert visitor.get(path).status_code == 200
    with Visitor(shop.port) as stranger:
        assert stranger.get(path).status_code == 404
        stranger.log_in("bob")
        assert stranger.get(path).status_code == 404
        assert stranger.get("/orders/10001/").status_code == 404
        assert stranger.get("/orders/10002/").status_code == 200


def test_form_without_its_token_is_refused(visitor: Visitor) -> None:
    before = visitor.state()
    assert visitor.post("/cart/rag-bear/add/", data={"quantity": "1"}).status_code == 403
    assert visitor.state() == before


# Accounts


@pytest.mark.parametrize("name", ["admin", "alice", "bob", "carol", "dave"])
def test_every_account_of_the_readme_can_log_in(visitor: Visitor, name: str) -> None:
    assert f"| `{name}` | `{name}-lantern` |" in (RECIPE / "README.md").read_text()
    page = visitor.log_in(name)
    assert page.url.path == "/account/"
    assert text(page, "account-link") == {"admin": "Ada"}.get(name, name.capitalize())


def test_new_customer_registers_orders_and_finds_the_order_after_logging_in_again(visitor: Visitor) -> None:
    form = {
        "username": "erin",
        "first_name": "Erin",
        "last_name": "Vogel",
        "email": "erin@example.com",
        "password1": "nine-lanterns",
        "password2": "nine-lanterns",
    }
    page = visitor.send_form("/account/register/", "/account/register/", form)
    assert page.url.path == "/account/"
    assert text(page, "no-orders") == "No orders yet."
    visitor.add("fountain-pen")
    visitor.check_out()
    page = visitor.send_form("/", "/account/logout/", {})
    assert text(page, "login-link") == "Log in"
    assert visitor.get("/account/").url.path == "/account/login/"
    page = visitor.log_in("erin", "nine-lanterns")
    assert len(re.findall(r'data-testid="my-order"', page.text)) == 1
    assert 'href="/orders/10009/"' in page.text
    visitor.add("rag-bear")
    assert 'value="Mühlgasse 5"' in visitor.get("/checkout/").text


def test_registration_with_a_taken_name_or_a_short_password_is_refused(visitor: Visitor) -> None:
    form = {"username": "alice", "email": "a@example.com", "password1": "short", "password2": "short"}
    page = visitor.send_form("/account/register/", "/account/register/", form)
    assert page.status_code == 422
    assert text(page, "error-username") == "A user with that username already exists."
    assert text(page, "error-password2").startswith("This password is too short.")


def test_wrong_password_is_refused(visitor: Visitor) -> None:
    page = visitor.log_in("alice", "bob-lantern")
    assert page.url.path == "/account/login/"
    assert "Please enter a correct username and password" in text(page, "form-error")


def test_logging_in_and_filling_a_cart_leave_the_state_as_it_was(visitor: Visitor) -> None:
    before = visitor.state()
    visitor.log_in("alice")
    visitor.add("rag-bear")
    assert visitor.state() == before


def test_cart_survives_logging_in(visitor: Visitor) -> None:
    visitor.add("rag-bear")
    assert text(visitor.log_in("alice"), "cart-count") == "1"


# Reviews and uploads


def test_review_with_a_picture_is_shown_and_the_picture_served_back(shop: Shop, visitor: Visitor) -> None:
    before = visitor.state()
    visitor.log_in("dave")
    form = {"rating": "4", "title": "Flies high", "text": "Even without wind,\nalmost."}
    page = visitor.send_form(
        "/product/diamond-kite/",
        "/product/diamond-kite/review/",
        form,
        {"picture": ("kite.png", PNG, "image/png")},
    )
    assert page.url.path == "/product/diamond-kite/"
    assert text(page, "rating") == "4.0"
    source = re.search(r'<img src="(/media/reviews/[^"]+)"', page.text)
    assert source is not None
    picture = visitor.get(source[1])
    assert picture.content == PNG
    assert picture.headers["content-type"] == "image/png"
    assert "sandbox" in picture.headers["content-security-policy"]
    assert picture.headers["x-content-type-options"] == "nosniff"
    after = visitor.state()
    assert (after["reviews"], after["uploads"]) == (13, 4)
    assert after["digest"] != before["digest"]


def test_second_review_of_a_product_replaces_the_first(visitor: Visitor) -> None:
    visitor.log_in("alice")
    before = visitor.state()
    form = {"rating": "1", "title": "It broke", "text": "After all these years."}
    page = visitor.send_form("/product/stoneware-mug/", "/product/stoneware-mug/review/", form)
    assert len(re.findall(r'data-testid="review"', page.text)) == 2
    assert "It broke" in page.text
    assert "My morning mug" not in page.text
    assert visitor.state()["reviews"] == before["reviews"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.png", b"<html><script>alert(1)</script>"),
        ("shell.php", PNG),
        ("drawing.svg", b"<svg onload='alert(1)'/>"),
    ],
)
def test_upload_that_is_no_picture_is_refused_and_not_kept(
    shop: Shop, built: Path, visitor: Visitor, name: str, content: bytes
) -> None:
    visitor.log_in("dave")
    form = {"rating": "4", "title": "Look", "text": "A picture."}
    page = visitor.send_form(
        "/product/diamond-kite/",
        "/product/diamond-kite/review/",
        form,
        {"picture": (name, content, "image/png")},
    )
    assert page.status_code == 422
    assert "is not a PNG, JPEG, GIF or WebP picture" in text(page, "error-picture")
    assert files(shop.data) == files(built)


def test_review_needs_an_account(visitor: Visitor) -> None:
    page = visitor.send_form("/account/login/", "/product/rag-bear/review/", {"rating": "5"})
    assert page.url.path == "/account/login/"


# The staff's side


def test_admin_is_closed_to_customers(visitor: Visitor) -> None:
    visitor.log_in("alice")
    assert visitor.get("/admin/shop/order/").url.path == "/admin/login/"


def test_every_list_and_form_of_the_admin_opens(visitor: Visitor) -> None:
    assert visitor.log_in_to_admin().url.path == "/admin/"
    for model in ("category", "product", "order", "customer", "review"):
        assert visitor.get(f"/admin/shop/{model}/?q=a").status_code == 200
        number = 2 if model == "customer" else 1
        assert visitor.get(f"/admin/shop/{model}/{number}/change/").status_code == 200
    assert visitor.get("/admin/auth/user/").status_code == 200
    assert visitor.get("/static/admin/css/base.css").headers["content-type"].startswith("text/css")


def test_admin_adds_a_product_with_a_picture_that_the_shop_then_sells(visitor: Visitor) -> None:
    visitor.log_in_to_admin()
    form = {
        "category": "4",
        "name": "Tin Drum",
        "slug": "tin-drum",
        "description": "Loud.",
        "price": "17.00",
        "stock": "3",
    }
    page = visitor.send_form(
        "/admin/shop/product/add/",
        "/admin/shop/product/add/",
        form,
        {"image": ("drum.png", PNG, "image/png")},
    )
    assert page.url.path == "/admin/shop/product/"
    assert text(visitor.get("/product/tin-drum/"), "product-price") == "€17.00"
    assert visitor.get("/media/products/drum.png").content == PNG
    visitor.add("tin-drum")
    assert text(visitor.check_out(), "order-total") == "€21.90"
    assert visitor.stock("tin-drum") == 2


def test_order_cancelled_by_the_staff_puts_its_goods_back_once(visitor: Visitor) -> None:
    visitor.log_in_to_admin()
    stock = visitor.stock("fountain-pen")
    form = {"action": "cancel_and_restock", "_selected_action": "8"}
    page = visitor.send_form("/admin/shop/order/", "/admin/shop/order/", form)
    assert "1 orders cancelled." in page.text
    assert visitor.stock("fountain-pen") == stock + 1
    page = visitor.send_form("/admin/shop/order/", "/admin/shop/order/", form)
    assert "0 orders cancelled." in page.text
    assert visitor.stock("fountain-pen") == stock + 1


def test_order_shipped_by_the_staff_is_shown_so_to_its_customer(shop: Shop, visitor: Visitor) -> None:
    visitor.log_in_to_admin()
    form = {"action": "mark_as_shipped", "_selected_action": "8"}
    visitor.send_form("/admin/shop/order/", "/admin/shop/order/", form)
    with Visitor(shop.port) as customer:
        customer.log_in("alice")
        assert text(customer.get("/orders/10008/"), "order-status") == "Shipped"


def test_change_by_the_staff_waits_for_whoever_is_writing(shop: Shop, visitor: Visitor) -> None:
    visitor.log_in_to_admin()
    path = "/admin/shop/category/1/change/"
    form = {"name": "Kitchen", "slug": "kitchen", "description": "All of it.", "position": "1"}
    writer = sqlite3.connect(shop.data / "shop.sqlite3", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE shop_category SET position = 9 WHERE id = 6")
    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(visitor.send_form, path, path, form)
        time.sleep(1)
        writer.execute("COMMIT")
        assert changed.result().url.path == "/admin/shop/category/"
    writer.close()
    assert "All of it." in visitor.get("/category/kitchen/").text


# Isolation


def test_digest_of_the_state_is_that_of_another_untouched_shop(
    shop: Shop, program: Path, built: Path, tmp_path: Path, visitor: Visitor
) -> None:
    data = tmp_path / "other"
    shutil.copytree(built, data)
    other = Shop(program, data, tmp_path / "other.log")
    with Visitor(other.port) as other_visitor:
        pristine = visitor.state()
        assert other_visitor.state() == pristine
        visitor.add("rag-bear")
        visitor.check_out()
        assert visitor.state() != pristine
        assert other_visitor.state() == pristine
    assert other.stop() == 0


SANDBOX = """
set -eu
root=$1 venv=$2 setup=$3
mkdir -p "$root/usr" "$root/opt/venv" "$root/dev"
mount --rbind /usr "$root/usr"
mount --bind "$venv" "$root/opt/venv"
for device in null urandom; do touch "$root/dev/$device"; mount --bind /dev/$device "$root/dev/$device"; done
cp "$setup" "$root/setup.sh"
chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin /setup.sh
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
chroot --userspec=1000:1000 "$root" /usr/bin/env -i /opt/venv/bin/python3 -ES /srv/shop/serve.py &
chroot "$root" /opt/venv/bin/python3 -ES -c '
import time, urllib.request
deadline = time.monotonic() + 20
while True:
    try:
        print(urllib.request.urlopen("http://shop.test/healthz", timeout=10).read().decode())
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.02)
'
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts and chroot need root")
def test_skeleton_with_nothing_but_usr_and_the_virtual_environment_is_set_up_and_served(
    program: Path, built: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    shutil.copytree(RECIPE / "root", root, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    arguments = [str(root), sys.prefix, str(RECIPE / "setup.sh")]
    result = subprocess.run(
        [*unshare, "sh", "-c", SANDBOX, "sandbox", *arguments], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "ok\n\n", "")
    data = root / "srv/shop/data"
    assert dump(data) == dump(built)
    assert {path.stat().st_uid for path in [data, *data.rglob("*")]} == {1000}
    assert {path.stat().st_uid for path in program.rglob("*")} == {0}
    assert list((root / "srv/shop/shop").rglob("settings.*.pyc")) != []
