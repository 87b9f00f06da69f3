"""The settings of the project. The secrets are for this machine alone."""

from __future__ import annotations

import os
from typing import Any

from psycopg.conninfo import conninfo_to_dict


def database(url: str) -> dict[str, Any]:
    """A URL, as Django has it in DATABASES."""
    if url.startswith("sqlite:///"):
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": url.removeprefix("sqlite:///"),
            # Who is going to write says so at once, and waits for its turn.
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
    "onefold.surfaces.django",
    "examples.django_shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    # Before whatever reads a body, as the next one does.
    "onefold.surfaces.django.IdempotencyMiddleware",
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
        # Every view is one transaction. Where it has a key, the key and the answer are in it.
        "ATOMIC_REQUESTS": True,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

ONEFOLD = {"DATABASE": "default"}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    # What the views guarantee is told with the first request.
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"onefold": {"handlers": ["console"], "level": "INFO"}},
}
