"""How passwords are kept."""

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class QuickPBKDF2(PBKDF2PasswordHasher):
    """PBKDF2 with few rounds: a million, as in Django, take long, and no password here is a secret."""

    iterations = 10_000
