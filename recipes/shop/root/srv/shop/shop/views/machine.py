"""Answers for programs: readiness, the catalogue and a summary of the state as JSON."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Sum
from django.http import HttpRequest, HttpResponse, JsonResponse

from shop.models import Category, Order, OrderLine, Product, Review


def healthz(_request: HttpRequest) -> HttpResponse:
    """Answer 200 once the database answers and has products."""
    if not Product.objects.exists():
        return HttpResponse("no products\n", content_type="text/plain", status=503)
    return HttpResponse("ok\n", content_type="text/plain")


def products(_request: HttpRequest) -> JsonResponse:
    """List every product, in the order of the catalogue."""
    rows = Product.objects.select_related("category").order_by("pk")
    return JsonResponse({"products": [_product(row) for row in rows]})


def _product(product: Product) -> dict[str, Any]:
    return {
        "slug": product.slug,
        "name": product.name,
        "category": product.category.slug,
        "price": str(product.price),
        "stock": product.stock,
        "url": product.get_absolute_url(),
        "image": product.image.url if product.image else None,
    }


def state(_request: HttpRequest) -> JsonResponse:
    """Summarise what customers and staff can change; equal digests mean equal rows (but for sessions)."""
    revenue = Order.objects.exclude(status=Order.Status.CANCELLED).aggregate(sum=Sum("total"))["sum"]
    units_ordered = OrderLine.objects.aggregate(sum=Sum("quantity"))["sum"]
    stock = Product.objects.aggregate(units=Sum("stock"), value=Sum(F("stock") * F("price")))
    return JsonResponse(
        {
            "orders": Order.objects.count(),
            "units_ordered": units_ordered or 0,
            "revenue": str(revenue or "0.00"),
            "products": Product.objects.count(),
            "stock": stock["units"] or 0,
            "stock_value": str(stock["value"] or "0.00"),
            "users": User.objects.count(),
            "reviews": Review.objects.count(),
            "uploads": Review.objects.exclude(picture="").count(),
            "digest": _digest(),
        }
    )


def _digest() -> str:
    digest = hashlib.sha256()
    for row in _rows():
        digest.update(json.dumps(row, default=str).encode())
    return digest.hexdigest()


def _rows() -> Iterator[list[Any]]:
    for model in (Category, Product, Order, OrderLine, Review):
        for row in model.objects.order_by("pk").values_list():
            yield [model.__name__, *row]
    columns = ("pk", "username", "email", "password", "is_staff", "is_active")
    for row in User.objects.order_by("pk").values_list(*columns):
        yield ["User", *row]
