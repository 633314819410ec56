"""The Django application."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """The shop itself: its models, templates and migrations."""

    name = "shop"
    verbose_name = "Shop"
