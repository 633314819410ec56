"""What the shop keeps."""

import hashlib
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from django.contrib.auth.models import User
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.urls import reverse

from shop.pictures import validate_photo, validate_picture


class Category(models.Model):
    """A shelf of the shop."""

    name = models.CharField(max_length=60, unique=True)
    slug = models.SlugField(unique=True)
    description = models.CharField(max_length=200)
    position = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ["position", "name"]
        verbose_name_plural = "categories"

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("category", args=[self.slug])


class Product(models.Model):
    """A thing for sale, with what is left of it in stock."""

    category = models.ForeignKey(Category, models.PROTECT, related_name="products")
    name = models.CharField(max_length=100)
    slug = models.SlugField(unique=True)
    description = models.TextField()
    price = models.DecimalField(
        max_digits=8, decimal_places=2, validators=[MinValueValidator(Decimal("0.01"))]
    )
    stock = models.PositiveIntegerField(default=0)
    featured = models.BooleanField(default=False)
    image = models.FileField(upload_to="products/", validators=[validate_picture], blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("product", args=[self.slug])


class Customer(User):
    """A user who is not of the staff, as the admin lists them."""

    class Meta:
        proxy = True


class Order(models.Model):
    """What one customer (or guest, without an account) bought at one time, at the prices of that time."""

    class Status(models.TextChoices):
        PLACED = "placed"
        SHIPPED = "shipped"
        CANCELLED = "cancelled"

    class Payment(models.TextChoices):
        INVOICE = "invoice", "Invoice, 14 days"
        DELIVERY = "delivery", "Cash on delivery"

    number = models.PositiveIntegerField(unique=True, editable=False)
    customer = models.ForeignKey(User, models.PROTECT, related_name="orders", null=True, blank=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PLACED)
    placed_at = models.DateTimeField()
    full_name = models.CharField(max_length=100)
    email = models.EmailField()
    street = models.CharField(max_length=120)
    postcode = models.CharField(max_length=12)
    city = models.CharField(max_length=60)
    country = models.CharField(max_length=60)
    payment = models.CharField(max_length=10, choices=Payment.choices, default=Payment.INVOICE)
    shipping = models.DecimalField(max_digits=6, decimal_places=2)
    total = models.DecimalField(max_digits=9, decimal_places=2)

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"Order {self.number}"

    def get_absolute_url(self) -> str:
        return reverse("order", args=[self.number])


class OrderLine(models.Model):
    """One product of an order."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT, related_name="lines")
    quantity = models.PositiveIntegerField()
    unit_price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"

    @property
    def total(self) -> Decimal:
        """Price of the line."""
        total: Decimal = self.quantity * self.unit_price
        return total


def review_picture_name(review: Any, uploaded_name: str) -> str:
    """Name a review's picture by its content: the same upload has the same name in every instance."""
    file = review.picture.file
    digest = hashlib.sha256(file.read()).hexdigest()[:12]
    file.seek(0)
    return f"reviews/{review.product.slug}-{digest}{PurePath(uploaded_name).suffix.lower()}"


class Review(models.Model):
    """A customer's opinion of a product; each has one per product and may change it."""

    product = models.ForeignKey(Product, models.CASCADE, related_name="reviews")
    customer = models.ForeignKey(User, models.CASCADE, related_name="reviews")
    rating = models.PositiveSmallIntegerField(validators=[MinValueValidator(1), MaxValueValidator(5)])
    title = models.CharField(max_length=80)
    text = models.TextField(max_length=2000)
    picture = models.FileField(upload_to=review_picture_name, validators=[validate_photo], blank=True)
    written_at = models.DateTimeField()

    class Meta:
        ordering = ["-written_at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["product", "customer"], name="one_review_per_product")]

    def __str__(self) -> str:
        return f"{self.product}: {self.title}"

    def stars(self) -> str:
        """Draw the rating."""
        return "★" * self.rating + "☆" * (5 - self.rating)
