"""Placing and cancelling orders: where stock goes down and comes back."""

from datetime import datetime
from decimal import Decimal

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Max

from shop.cart import CartLine, shipping_for
from shop.models import Order, OrderLine, Product

FIRST_NUMBER = 10001


class OutOfStock(Exception):
    """Less of a product is left than was ordered; nothing was changed."""

    def __init__(self, product: Product) -> None:
        super().__init__(f"Only {product.stock} of {product.name} left.")
        self.product = product


@transaction.atomic
def place(order: Order, lines: list[CartLine], customer: User | None, placed_at: datetime) -> Order:
    """Save `order`, which has its address, with `lines` and take them from the stock: all of it or nothing.

    Raises OutOfStock, and ValueError without lines.
    """
    if not lines:
        raise ValueError("an order needs at least one line")
    for line in lines:
        _take(line)
    goods = sum((line.total for line in lines), Decimal(0))
    order.number = (Order.objects.aggregate(last=Max("number"))["last"] or FIRST_NUMBER - 1) + 1
    order.customer = customer
    order.placed_at = placed_at
    order.shipping = shipping_for(goods)
    order.total = goods + order.shipping
    order.save(force_insert=True)
    OrderLine.objects.bulk_create(
        OrderLine(order=order, product=line.product, quantity=line.quantity, unit_price=line.product.price)
        for line in lines
    )
    return order


def _take(line: CartLine) -> None:
    """Take the line from the stock, which the database itself compares: the cart's copy may be old."""
    stocked = Product.objects.filter(pk=line.product.pk, stock__gte=line.quantity)
    if not stocked.update(stock=F("stock") - line.quantity):
        raise OutOfStock(Product.objects.get(pk=line.product.pk))


@transaction.atomic
def cancel(order: Order) -> bool:
    """Cancel a placed order and put its goods back in stock; False if it is shipped or cancelled already."""
    placed = Order.objects.filter(pk=order.pk, status=Order.Status.PLACED)
    if not placed.update(status=Order.Status.CANCELLED):
        return False
    for line in order.lines.all():
        Product.objects.filter(pk=line.product_id).update(stock=F("stock") + line.quantity)
    return True
