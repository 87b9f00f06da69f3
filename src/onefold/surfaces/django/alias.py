"""The URL of a database that Django knows by an alias."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTS: Final = {
    "NAME": "dbname",
    "USER": "user",
    "PASSWORD": "password",
    "HOST": "host",
    "PORT": "port",
}
"""What libpq calls them."""

NOT_OF_LIBPQ: Final = frozenset(
    {
        "assume_role",
        "client_encoding",
        "context",
        "cursor_factory",
        "isolation_level",
        "pool",
        "prepare_threshold",
        "server_side_binding",
    }
)
"""Options of a database that are Django's or psycopg's own."""


def url_of(alias: str) -> str:
    """The URL by which Onefold opens connections of its own to the same database."""
    given = connections.settings[alias]
    match connections[alias].vendor:
        case "sqlite":
            return _sqlite(alias, given)
        case "postgresql":
            return _postgresql(given)
        case vendor:
            raise ImproperlyConfigured(
                f"Onefold keeps its tables in PostgreSQL or SQLite, and the database {alias!r} is"
                f' {vendor}. Name another one in ONEFOLD["DATABASE"].'
            )


def is_in_memory(alias: str) -> bool:
    """True for a database that only the connection has that made it: Django's tests on SQLite."""
    name = connections.settings[alias]["NAME"]
    return connections[alias].vendor == "sqlite" and (
        not name or (isinstance(name, str) and (name == ":memory:" or "mode=memory" in name))
    )


def _sqlite(alias: str, given: Mapping[str, Any]) -> str:
    name = str(given["NAME"])
    if is_in_memory(alias):
        raise ImproperlyConfigured(
            f"The database {alias!r} is in memory, where Onefold's own connections do not reach it."
            f' For tests, name a file: DATABASES["{alias}"]["TEST"] = {{"NAME": "test.sqlite3"}}.'
        )
    if name.startswith("file:"):
        raise ImproperlyConfigured(
            f"The database {alias!r} is named by a URI. Name the file by its path."
        )
    return f"sqlite:///{quote(str(Path(name).absolute()))}"


def _postgresql(given: Mapping[str, Any]) -> str:
    options: dict[str, Any] = dict(given.get("OPTIONS") or {})
    parts = {PARTS[name]: given[name] for name in PARTS if given.get(name)}
    parts |= {name: value for name, value in options.items() if name not in NOT_OF_LIBPQ}
    if role := options.get("assume_role"):
        parts["options"] = f"{parts.get('options', '')} -c role={_escaped(role)}".strip()
    return f"postgresql:///?{urlencode(parts, quote_via=quote)}"


def _escaped(value: str) -> str:
    """As libpq wants a value among its options."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
