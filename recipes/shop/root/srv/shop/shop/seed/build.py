"""Build a new shop: the same database and the same files every time."""

import hashlib
from datetime import datetime
from decimal import Decimal

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.utils.text import slugify

from shop.cart import CartLine
from shop.models import Category, Order, Product, Review
from shop.ordering import cancel, place
from shop.seed.catalogue import FEATURED, SHELVES
from shop.seed.drawings import photo_png, product_svg
from shop.seed.people import ORDERS, PEOPLE, REVIEWS

BUILT_AT = datetime(2024, 9, 1)


def build() -> None:
    """Create the database and the media directory in an empty data directory.

    Raises SystemExit if there is a database already.
    """
    database = settings.DATABASES["default"]["NAME"]
    if database.exists():
        raise SystemExit(f"shop: {database} exists already; remove it to build a new shop")
    for directory in ("products", "reviews"):
        (settings.MEDIA_ROOT / directory).mkdir(parents=True)
    call_command("migrate", verbosity=0)
    with transaction.atomic():
        _fill()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_migrations SET applied = %s", [BUILT_AT])
        cursor.execute("VACUUM")
    connection.close()


def _fill() -> None:
    products = _add_products()
    users = _add_people()
    _add_orders(products, users)
    _add_reviews(products, users)


def _add_products() -> dict[str, Product]:
    products = {}
    for position, shelf in enumerate(SHELVES, start=1):
        category = Category.objects.create(
            name=shelf.name, slug=slugify(shelf.name), description=shelf.description, position=position
        )
        for item in shelf.items:
            slug = slugify(item.name)
            image = f"products/{slug}.svg"
            (settings.MEDIA_ROOT / image).write_text(product_svg(item.name, item.drawing))
            products[item.name] = Product.objects.create(
                category=category,
                name=item.name,
                slug=slug,
                description=item.description,
                price=Decimal(item.price),
                stock=item.stock,
                featured=item.name in FEATURED,
                image=image,
            )
    return products


def _add_people() -> dict[str, User]:
    return {
        person.username: User.objects.create(
            username=person.username,
            password=make_password(person.password, salt=_salt(person.username)),
            first_name=person.first_name,
            last_name=person.last_name,
            email=f"{person.username}@example.com",
            is_staff=person.is_admin,
            is_superuser=person.is_admin,
            date_joined=BUILT_AT,
        )
        for person in PEOPLE
    }


def _salt(username: str) -> str:
    """Give a fixed salt, long enough that Django does not replace it (and so the password's row) at the next login."""
    return hashlib.sha256(username.encode()).hexdigest()[:32]


def _add_orders(products: dict[str, Product], users: dict[str, User]) -> None:
    addresses = {person.username: person.address for person in PEOPLE}
    for past in ORDERS:
        customer = users[past.username]
        street, postcode, city, country = addresses[past.username]
        order = Order(
            full_name=customer.get_full_name(),
            email=customer.email,
            street=street,
            postcode=postcode,
            city=city,
            country=country,
            payment=past.payment,
        )
        lines = [CartLine(products[name], quantity) for name, quantity in past.lines.items()]
        place(order, lines, customer, past.placed_at)
        if past.status == Order.Status.CANCELLED:
            cancel(order)
        else:
            Order.objects.filter(pk=order.pk).update(status=past.status)


def _add_reviews(products: dict[str, Product], users: dict[str, User]) -> None:
    for past in REVIEWS:
        review = Review(
            product=products[past.product],
            customer=users[past.username],
            rating=past.rating,
            title=past.title,
            text=past.text,
            written_at=past.written_at,
        )
        if past.photo is not None:
            review.picture = f"reviews/{review.product.slug}-{past.username}.png"
            (settings.MEDIA_ROOT / review.picture.name).write_bytes(photo_png(past.photo))
        review.save()
