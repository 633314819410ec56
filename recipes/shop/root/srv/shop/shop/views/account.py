"""Accounts: registering, one's own orders, reviews."""

from datetime import datetime

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from shop.forms import RegistrationForm, ReviewForm
from shop.models import Product, Review
from shop.views import catalogue


def register(request: HttpRequest) -> HttpResponse:
    """Create an account and log in to it."""
    form = RegistrationForm(request.POST or None)
    if not form.is_valid():
        return render(request, "shop/register.html", {"form": form}, status=422 if form.is_bound else 200)
    login(request, form.save())
    messages.success(request, "Welcome! Your account is ready.")
    return redirect("account")


@login_required
def account(request: HttpRequest) -> HttpResponse:
    """Show the customer's own orders and reviews."""
    reviews = request.user.reviews.select_related("product")
    return render(request, "shop/account.html", {"orders": request.user.orders.all(), "reviews": reviews})


@login_required
@require_POST
def review(request: HttpRequest, slug: str) -> HttpResponse:
    """Save the customer's review of a product; it replaces an earlier one."""
    product = get_object_or_404(Product, slug=slug)
    earlier = Review.objects.filter(product=product, customer=request.user).first()
    written = earlier or Review(product=product, customer=request.user)
    written.written_at = datetime.now()
    form = ReviewForm(request.POST, request.FILES, instance=written)
    if not form.is_valid():
        return catalogue.product(request, slug, review_form=form)
    form.save()
    messages.success(request, "Thank you for your review.")
    return redirect(product)
