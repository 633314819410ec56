"""The root of the project's own errors."""

from __future__ import annotations


class WebservError(Exception):
    """Something was refused or did not work; the text says what, and what to do about it."""
