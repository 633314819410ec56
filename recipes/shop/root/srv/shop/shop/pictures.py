"""Uploaded pictures: what is taken, told by the file's first bytes and never by what the browser claims."""

import re
from pathlib import PurePath

from django.core.exceptions import ValidationError
from django.core.files import File

MAX_BYTES = 2 * 1024 * 1024
PHOTO_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
PICTURE_TYPES = {**PHOTO_TYPES, ".svg": "image/svg+xml"}
SVG_START = re.compile(rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<svg[\s>]", re.DOTALL)


def media_type(start: bytes) -> str | None:
    """Tell the media type of a picture from its first kilobyte; None if the shop does not take such."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    if SVG_START.match(start):
        return "image/svg+xml"
    return None


def validate_photo(file: File) -> None:
    """Refuse all but PNG, JPEG, GIF and WebP (customers may not upload SVG, which can carry scripts)."""
    _validate(file, PHOTO_TYPES, "a PNG, JPEG, GIF or WebP picture")


def validate_picture(file: File) -> None:
    """Refuse all but PNG, JPEG, GIF, WebP and SVG."""
    _validate(file, PICTURE_TYPES, "a PNG, JPEG, GIF, WebP or SVG picture")


def _validate(file: File, types: dict[str, str], wanted: str) -> None:
    if file.size > MAX_BYTES:
        raise ValidationError(f"The picture has {file.size} bytes; at most {MAX_BYTES} are allowed.")
    file.seek(0)
    start = file.read(1024)
    file.seek(0)
    found = media_type(start)
    if found is None or types.get(PurePath(file.name).suffix.lower()) != found:
        raise ValidationError(f"{file.name} is not {wanted}, or its name does not end accordingly.")
