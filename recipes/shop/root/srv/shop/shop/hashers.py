"""How passwords are kept."""

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class QuickPBKDF2(PBKDF2PasswordHasher):
    """PBKDF2 with few rounds: Django's million costs 300 ms of cpu a login, and no password here is a secret."""

    iterations = 10_000
