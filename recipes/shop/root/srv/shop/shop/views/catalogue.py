"""Looking around: the front page, categories, products, search."""

from django.core.paginator import Paginator
from django.db.models import Avg, Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from shop.forms import AddToCartForm, ReviewForm
from shop.models import Category, Product

PAGE_SIZE = 12
SORTINGS = {
    "name": ("Name", ["name"]),
    "price": ("Price, low to high", ["price", "name"]),
    "-price": ("Price, high to low", ["-price", "name"]),
}


def home(request: HttpRequest) -> HttpResponse:
    """Show the categories and the featured products."""
    return render(request, "shop/home.html", {"featured": Product.objects.filter(featured=True)})


def category(request: HttpRequest, slug: str) -> HttpResponse:
    """List the products of one category."""
    shelf = get_object_or_404(Category, slug=slug)
    context = {"title": shelf.name, "lead": shelf.description, "category": shelf}
    return _listing(request, shelf.products.all(), context)


def search(request: HttpRequest) -> HttpResponse:
    """List the products that have every word of the query in name, description or category."""
    query = request.GET.get("q", "").strip()[:100]
    products = Product.objects.all()
    for word in query.split():
        products = products.filter(
            Q(name__icontains=word) | Q(description__icontains=word) | Q(category__name__icontains=word)
        )
    title = f"Results for “{query}”" if query else "All products"
    return _listing(request, products, {"title": title, "query": query})


def _listing(request: HttpRequest, products: QuerySet[Product], context: dict[str, object]) -> HttpResponse:
    sorting = request.GET.get("sort", "name")
    if sorting not in SORTINGS:
        sorting = "name"
    page = Paginator(products.order_by(*SORTINGS[sorting][1]), PAGE_SIZE).get_page(request.GET.get("page"))
    sortings = [(key, label) for key, (label, _columns) in SORTINGS.items()]
    context |= {"page": page, "sorting": sorting, "sortings": sortings}
    return render(request, "shop/listing.html", context)


def product(request: HttpRequest, slug: str, review_form: ReviewForm | None = None) -> HttpResponse:
    """Show one product with its reviews; `review_form` is a rejected one, to be corrected."""
    shown = get_object_or_404(Product.objects.select_related("category"), slug=slug)
    reviews = shown.reviews.select_related("customer")
    if review_form is None and request.user.is_authenticated:
        review_form = ReviewForm(instance=reviews.filter(customer=request.user).first())
    context = {
        "product": shown,
        "reviews": reviews,
        "rating": reviews.aggregate(average=Avg("rating"), count=Count("pk")),
        "add_form": AddToCartForm(),
        "review_form": review_form,
    }
    status = 422 if review_form is not None and review_form.errors else 200
    return render(request, "shop/product.html", context, status=status)
