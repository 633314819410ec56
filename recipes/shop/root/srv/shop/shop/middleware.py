"""What happens around every request."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse


def lazy_admin(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Route /admin/ by its own URLconf, so that no other request pays for importing the admin."""

    def route(request: HttpRequest) -> HttpResponse:
        if request.path_info.startswith("/admin/"):
            request.urlconf = "shop.admin_urls"
        return get_response(request)

    return route
