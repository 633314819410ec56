"""Buy something in the demo's shop as a visitor with a browser does."""

from __future__ import annotations

import re

import httpx

from webserv_rt.errors import WebservError

PRODUCT = "stoneware-mug"
ADDRESS = {
    "full_name": "Ada Demo",
    "email": "ada@example.com",
    "street": "1 Analytical Row",
    "postcode": "EC1",
    "city": "London",
    "country": "United Kingdom",
    "payment": "invoice",
}


def buy(url: str, host: str) -> str:
    """Put a product into the cart and check out; return the order's number."""
    with httpx.Client(base_url=url, headers={"Host": host}, follow_redirects=True) as visitor:
        _submit(visitor, f"/product/{PRODUCT}/", f"/cart/{PRODUCT}/add/", {"quantity": "1"})
        page = _submit(visitor, "/checkout/", "/checkout/", ADDRESS)
    number = re.search(r'data-testid="order-number">(\d+)', page)
    if number is None:
        raise WebservError("the shop did not confirm the order")
    return number[1]


def _submit(visitor: httpx.Client, page: str, action: str, fields: dict[str, str]) -> str:
    """Open a page and post a form of it with the page's own token, which is also in a cookie."""
    token = re.search(
        r'name="csrfmiddlewaretoken" value="([^"]+)"', visitor.get(page).raise_for_status().text
    )
    if token is None:
        raise WebservError(f"there is no form on {page}")
    return visitor.post(action, data={**fields, "csrfmiddlewaretoken": token[1]}).raise_for_status().text
