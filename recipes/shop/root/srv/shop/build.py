"""Create the database and the pictures of a new shop in SHOP_DATA (/srv/shop/data)."""

import bootstrap

bootstrap.add_virtual_environment()

import django  # noqa: E402

django.setup()

from shop.seed.build import build  # noqa: E402

build()
