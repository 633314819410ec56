"""Settings of the shop; what could differ between two builds is fixed, so that two builds are equal."""

import os
from pathlib import Path

APP_DIR = Path(__file__).resolve().parent
DATA_DIR = Path(os.environ.get("SHOP_DATA", "/srv/shop/data"))

# An open secret: it signs the cookies of a sandbox that is thrown away.
SECRET_KEY = "webserv-rt-shop-this-key-is-public-and-fixed-on-purpose"
DEBUG = False
# The gateway reaches an instance under its canonical name or under a port of whatever address the host has.
ALLOWED_HOSTS = ["*"]

ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    # Without autodiscovery: shop.admin is imported by the first request to /admin/.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "shop.apps.ShopConfig",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "shop.middleware.lazy_admin",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "shop.context.storefront",
            ],
        },
    }
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATA_DIR / "shop.sqlite3",
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "timeout": 10,
            # Two orders at once must queue for the write lock; upgrading a read lock would fail instead.
            "transaction_mode": "IMMEDIATE",
            # A rollback journal keeps the database one file, easy to compare. It survives a killed process;
            # a crash of the host it need not survive, since an instance does not either: nothing is synced.
            "init_command": "PRAGMA journal_mode=DELETE; PRAGMA synchronous=OFF; PRAGMA cache_size=-1024;",
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

PASSWORD_HASHERS = ["shop.hashers.QuickPBKDF2"]
AUTH_PASSWORD_VALIDATORS = [{"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"}]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "account"
LOGOUT_REDIRECT_URL = "home"

STATIC_URL = "/static/"
MEDIA_URL = "/media/"
MEDIA_ROOT = DATA_DIR / "media"

# No catalogues of translations and no tz database in memory: English, and naive times in UTC.
USE_I18N = False
USE_TZ = False
TIME_ZONE = "UTC"

# serve() has set up logging to stderr; Django's own set-up would mail the errors.
LOGGING_CONFIG = None
