"""The settings of the project. The secrets are for this machine only."""

from __future__ import annotations

import os
from typing import Any

from psycopg.conninfo import conninfo_to_dict


def database(url: str) -> dict[str, Any]:
    """Convert a URL to an entry of DATABASES."""
    if url.startswith("sqlite:///"):
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": url.removeprefix("sqlite:///"),
            # A transaction takes the write lock at its start, and waits for it.
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
        }
    parts = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.pop("dbname"),
        "OPTIONS": parts,
    }


SECRET_KEY = "a secret of this example, and of nothing else"  # noqa: S105
WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
USE_TZ = True

INSTALLED_APPS = [
    "django.contrib.sessions",
    "onefold.django",
    "examples.django_shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    # Before middleware that reads the body, such as the next one.
    "onefold.django.IdempotencyMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
ROOT_URLCONF = "examples.django_shop.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
    }
]
DATABASES = {
    "default": {
        **database(os.environ.get("SHOP_DATABASE", "sqlite:///django_shop.db")),
        # Every view is one transaction. If it has a key, the key and the response are part of it.
        "ATOMIC_REQUESTS": True,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

ONEFOLD = {"DATABASE": "default"}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    # The guarantees of the views are logged with the first request.
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"onefold": {"handlers": ["console"], "level": "INFO"}},
}
