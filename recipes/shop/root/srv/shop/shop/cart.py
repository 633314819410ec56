"""The cart: product ids and quantities in the visitor's session."""

from dataclasses import dataclass
from decimal import Decimal

from django.contrib.sessions.backends.base import SessionBase

from shop.models import Product

FREE_SHIPPING_FROM = Decimal("60.00")
SHIPPING = Decimal("4.90")


@dataclass(frozen=True)
class CartLine:
    """One product in the cart."""

    product: Product
    quantity: int

    @property
    def total(self) -> Decimal:
        """Price of the line."""
        total: Decimal = self.quantity * self.product.price
        return total


class Cart:
    """The cart of one session; nothing is written to the session until something is put in or taken out."""

    def __init__(self, session: SessionBase) -> None:
        self._session = session
        self._quantities: dict[str, int] = dict(session.get("cart", {}))

    @property
    def n_units(self) -> int:
        """Number of things in the cart."""
        return sum(self._quantities.values())

    def quantity(self, product: Product) -> int:
        """Tell how many of `product` are in the cart."""
        return self._quantities.get(str(product.pk), 0)

    def set(self, product: Product, quantity: int) -> int:
        """Hold `quantity` of `product`, at most what is in stock (0 takes it out); return what is held."""
        held = max(0, min(quantity, product.stock))
        if held:
            self._quantities[str(product.pk)] = held
        else:
            self._quantities.pop(str(product.pk), None)
        self._session["cart"] = self._quantities
        return held

    def clear(self) -> None:
        """Take everything out."""
        self._quantities = {}
        self._session["cart"] = {}

    def lines(self) -> list[CartLine]:
        """List what is in the cart, by product name, at today's prices, without products that are gone."""
        products = Product.objects.filter(pk__in=self._quantities).select_related("category")
        return [CartLine(product, self.quantity(product)) for product in products]


def shipping_for(goods: Decimal) -> Decimal:
    """Give the price of shipping goods of that value."""
    return Decimal("0.00") if goods >= FREE_SHIPPING_FROM else SHIPPING
