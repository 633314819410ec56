"""The cart and the checkout."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from shop.cart import FREE_SHIPPING_FROM, Cart, CartLine, shipping_for
from shop.forms import AddToCartForm, CartLineForm, CheckoutForm
from shop.models import Order, Product
from shop.ordering import OutOfStock, place


def show(request: HttpRequest) -> HttpResponse:
    """Show the cart."""
    return render(request, "shop/cart.html", _sums(Cart(request.session).lines()))


@require_POST
def add(request: HttpRequest, slug: str) -> HttpResponse:
    """Put more of a product in the cart."""
    product = get_object_or_404(Product, slug=slug)
    form = AddToCartForm(request.POST)
    if not form.is_valid():
        messages.error(request, _first_error(form))
        return redirect(product)
    cart = Cart(request.session)
    wanted = cart.quantity(product) + form.cleaned_data["quantity"]
    if cart.set(product, wanted) < wanted:
        messages.warning(request, f"Only {product.stock} of {product.name} left.")
    else:
        messages.success(request, f"{product.name} is in your cart.")
    return redirect("cart")


@require_POST
def change(request: HttpRequest, slug: str) -> HttpResponse:
    """Set how many of a product are in the cart; 0 takes it out."""
    product = get_object_or_404(Product, slug=slug)
    form = CartLineForm(request.POST)
    if not form.is_valid():
        messages.error(request, _first_error(form))
    elif Cart(request.session).set(product, form.cleaned_data["quantity"]) < form.cleaned_data["quantity"]:
        messages.warning(request, f"Only {product.stock} of {product.name} left.")
    return redirect("cart")


def checkout(request: HttpRequest) -> HttpResponse:
    """Ask for the address and place the order."""
    cart = Cart(request.session)
    lines = cart.lines()
    if not lines:
        messages.error(request, "Your cart is empty.")
        return redirect("cart")
    customer = request.user if request.user.is_authenticated else None
    form = CheckoutForm(request.POST or None, initial=_last_address(customer))
    if not form.is_valid():
        status = 422 if form.is_bound else 200
        return render(request, "shop/checkout.html", {"form": form, **_sums(lines)}, status=status)
    try:
        order = place(form.save(commit=False), lines, customer, datetime.now())
    except OutOfStock as error:
        messages.error(request, str(error))
        return redirect("cart")
    cart.clear()
    request.session["orders"] = [*request.session.get("orders", []), order.number]
    messages.success(request, f"Thank you! Your order number is {order.number}.")
    return redirect(order)


def order(request: HttpRequest, number: int) -> HttpResponse:
    """Show an order to the customer (or guest, by session) who placed it; for others it does not exist."""
    shown = get_object_or_404(Order, number=number)
    is_own = request.user.is_authenticated and shown.customer_id == request.user.pk
    if not is_own and number not in request.session.get("orders", []):
        raise Http404("no such order of yours")
    context = {"order": shown, "lines": shown.lines.select_related("product")}
    return render(request, "shop/order.html", context)


def _sums(lines: list[CartLine]) -> dict[str, Any]:
    goods = sum((line.total for line in lines), Decimal("0.00"))
    shipping = shipping_for(goods)
    return {
        "lines": lines,
        "goods": goods,
        "shipping": shipping,
        "total": goods + shipping,
        "free_shipping_from": FREE_SHIPPING_FROM,
    }


def _last_address(customer: User | None) -> dict[str, str]:
    """Give the address of the customer's last order, or at least the name of the account."""
    if customer is None:
        return {}
    last = customer.orders.first()
    if last is None:
        return {"full_name": customer.get_full_name(), "email": customer.email}
    return {name: getattr(last, name) for name in CheckoutForm.Meta.fields}


def _first_error(form: Form) -> str:
    field, errors = next(iter(form.errors.items()))
    return f"{field.capitalize()}: {errors[0]}"
