"""The staff's side: products, orders, customers, reviews."""

import django.contrib.auth.admin  # noqa: F401  (registers users and groups)
from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from shop.models import Category, Customer, Order, OrderLine, Product, Review
from shop.ordering import cancel

site = admin.site
site.site_header = site.site_title = "Lantern Lane"


@admin.register(Category)
class CategoryAdmin(admin.ModelAdmin):
    """Categories."""

    list_display = ["name", "position", "description"]
    list_editable = ["position"]
    prepopulated_fields = {"slug": ["name"]}


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    """Products; price, stock and whether a product is featured can be changed in the list."""

    list_display = ["name", "category", "price", "stock", "featured"]
    list_editable = ["price", "stock", "featured"]
    list_filter = ["category", "featured"]
    search_fields = ["name", "description"]
    prepopulated_fields = {"slug": ["name"]}
    list_select_related = ["category"]


class OrderLineInline(admin.TabularInline):
    """The lines of an order, which do not change once it is placed."""

    model = OrderLine
    fields = readonly_fields = ["product", "quantity", "unit_price", "total"]
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        return False


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    """Orders: the address may be corrected; the status changes by actions, which keep the stock right."""

    list_display = ["number", "placed_at", "full_name", "city", "total", "status"]
    list_filter = ["status", "payment"]
    search_fields = ["number", "full_name", "email", "city"]
    readonly_fields = ["number", "customer", "placed_at", "status", "shipping", "total"]
    inlines = [OrderLineInline]
    actions = ["mark_as_shipped", "cancel_and_restock"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @admin.action(description="Mark as shipped")
    def mark_as_shipped(self, request: HttpRequest, orders: QuerySet[Order]) -> None:
        n_shipped = orders.filter(status=Order.Status.PLACED).update(status=Order.Status.SHIPPED)
        messages.success(request, f"{n_shipped} orders marked as shipped.")

    @admin.action(description="Cancel and restock")
    def cancel_and_restock(self, request: HttpRequest, orders: QuerySet[Order]) -> None:
        n_cancelled = sum(cancel(order) for order in orders)
        messages.success(request, f"{n_cancelled} orders cancelled.")


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    """Customers with the number of their orders."""

    list_display = ["username", "first_name", "last_name", "email", "n_orders", "is_active"]
    search_fields = ["username", "first_name", "last_name", "email"]
    fields = ["username", "first_name", "last_name", "email", "is_active"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Customer]:
        return super().get_queryset(request).filter(is_staff=False).annotate(n_orders=Count("orders"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @admin.display(description="orders", ordering="n_orders")
    def n_orders(self, customer: Customer) -> int:
        count: int = customer.n_orders
        return count


@admin.register(Review)
class ReviewAdmin(admin.ModelAdmin):
    """Reviews."""

    list_display = ["product", "customer", "rating", "title", "written_at"]
    list_filter = ["rating"]
    search_fields = ["title", "text", "product__name"]
    list_select_related = ["product", "customer"]
