"""The shop's addresses (those of the admin are in admin_urls.py)."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from shop.views import account, cart, catalogue, files, machine

urlpatterns = [
    path("healthz", machine.healthz, name="healthz"),
    path("", catalogue.home, name="home"),
    path("category/<slug:slug>/", catalogue.category, name="category"),
    path("product/<slug:slug>/", catalogue.product, name="product"),
    path("product/<slug:slug>/review/", account.review, name="review"),
    path("search/", catalogue.search, name="search"),
    path("cart/", cart.show, name="cart"),
    path("cart/<slug:slug>/add/", cart.add, name="cart-add"),
    path("cart/<slug:slug>/change/", cart.change, name="cart-change"),
    path("checkout/", cart.checkout, name="checkout"),
    path("orders/<int:number>/", cart.order, name="order"),
    path("account/", account.account, name="account"),
    path("account/register/", account.register, name="register"),
    path("account/login/", LoginView.as_view(template_name="shop/login.html"), name="login"),
    path("account/logout/", LogoutView.as_view(), name="logout"),
    path("api/products", machine.products, name="api-products"),
    path("api/state", machine.state, name="api-state"),
    path("static/admin/<path:path>", files.admin_static),
    path("static/<path:path>", files.static),
    path("media/<path:path>", files.media),
]
