"""Files: the style sheet, the admin's own files, uploads."""

import mimetypes
from pathlib import Path

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.static import serve

# Python 3.11 does not know it yet.
mimetypes.add_type("image/webp", ".webp")

ADMIN_FILES = Path(django.__file__).parent / "contrib/admin/static/admin"


def static(request: HttpRequest, path: str) -> HttpResponse:
    """Serve a file of the shop's own."""
    return _cached(serve(request, path, document_root=settings.APP_DIR / "static"))


def admin_static(request: HttpRequest, path: str) -> HttpResponse:
    """Serve a file of the admin's."""
    return _cached(serve(request, path, document_root=ADMIN_FILES))


def media(request: HttpRequest, path: str) -> HttpResponse:
    """Serve an upload; scripts in it (SVG can carry them) do not run."""
    response = serve(request, path, document_root=settings.MEDIA_ROOT)
    response["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    return response


def _cached(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "max-age=3600"
    return response
