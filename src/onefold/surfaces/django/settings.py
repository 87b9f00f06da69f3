"""The setting ONEFOLD of a Django project.

ONEFOLD = {"DATABASE": "default"}          # an alias of DATABASES, or the URL of another database
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from onefold.surfaces.http.desk import Unconfigured

OPTIONS: Final = {
    "SCHEMA": "schema",
    "BUSY_TIMEOUT": "busy_timeout",
    "SHARDS": "shards",
    "PREPARED_STATEMENTS": "prepared_statements",
    "NOTIFY": "notify",
}
"""What is passed on to `Onefold`, and how it is called there."""

KNOWN: Final = ("DATABASE", "AUTODISCOVER", "UNCONFIGURED", *OPTIONS)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The setting, read."""

    database: str = "default"
    """An alias of DATABASES, or a URL."""
    autodiscover: tuple[str, ...] = ("jobs", "tasks")
    """The modules of each app that declare jobs; imported when Django starts."""
    unconfigured: Unconfigured = "refuse"
    """What happens to a POST or PATCH with a key to a view without a policy."""
    options: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def alias(self) -> str | None:
        """The alias, unless it is a URL."""
        return None if "://" in self.database else self.database


def read_settings() -> Settings:
    """What the project says now."""
    found: Any = getattr(settings, "ONEFOLD", {})
    if not isinstance(found, Mapping):
        raise ImproperlyConfigured('ONEFOLD must be a dictionary like {"DATABASE": "default"}.')
    given = cast("Mapping[str, Any]", found)
    for name in given:
        if name not in KNOWN:
            raise ImproperlyConfigured(f"ONEFOLD has no {name!r}. It knows {', '.join(KNOWN)}.")
    database: Any = given.get("DATABASE", "default")
    if not isinstance(database, str) or ("://" not in database and not _is_alias(database)):
        raise ImproperlyConfigured(
            'ONEFOLD["DATABASE"] must be an alias of DATABASES, or a URL like'
            " postgresql://app@db/orders."
        )
    unconfigured: Any = given.get("UNCONFIGURED", "refuse")
    if unconfigured not in ("refuse", "ignore"):
        raise ImproperlyConfigured('ONEFOLD["UNCONFIGURED"] must be "refuse" or "ignore".')
    return Settings(
        database=database,
        unconfigured=unconfigured,
        autodiscover=_modules(given.get("AUTODISCOVER", ("jobs", "tasks"))),
        options={OPTIONS[name]: value for name, value in given.items() if name in OPTIONS},
    )


def _is_alias(name: str) -> bool:
    from django.db import connections

    return name in connections.settings


def _modules(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ImproperlyConfigured(
            'ONEFOLD["AUTODISCOVER"] must be a list of module names like ["jobs", "tasks"].'
        )
    return tuple(cast("Sequence[str]", given))
