"""All addresses, the admin's among them: used for requests to /admin/ only (see shop.middleware)."""

from django.urls import path

from shop.admin import site
from shop.urls import urlpatterns as shop_patterns

urlpatterns = [path("admin/", site.urls), *shop_patterns]
