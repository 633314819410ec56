"""What every page shows."""

from typing import Any

from django.http import HttpRequest

from shop.cart import Cart
from shop.models import Category


def storefront(request: HttpRequest) -> dict[str, Any]:
    """Give the shop's own pages the categories and the number of things in the cart; the admin nothing."""
    if request.path_info.startswith("/admin/"):
        return {}
    return {"categories": Category.objects.all(), "cart_count": Cart(request.session).n_units}
