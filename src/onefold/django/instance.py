"""The Onefold of a Django project: one per process, made from the setting ONEFOLD.

ONEFOLD = {"DATABASE": "default"}          # an alias of DATABASES, or the URL of another database
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections

from onefold.app.onefold import Onefold
from onefold.web.idempotency.keyed_routes import Unconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onefold.databases import Build, Database, Store
    from onefold.databases.batching import Item
    from onefold.model.job import Job


OPTIONS: Final = ("SCHEMA", "BUSY_TIMEOUT", "SHARDS", "PREPARED_STATEMENTS", "NOTIFY")
"""Options of `Onefold`."""
KNOWN: Final = ("DATABASE", "AUTODISCOVER", "UNCONFIGURED", *OPTIONS)


class DjangoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The setting ONEFOLD."""

    database: str = "default"
    """An alias of DATABASES, or a URL."""
    autodiscover: Sequence[str] = ("jobs", "tasks")
    """The modules of each app that declare jobs; imported when Django starts."""
    unconfigured: Unconfigured = "refuse"
    """What happens to a POST or PATCH with a key to a view without a policy."""
    options: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def alias(self) -> str | None:
        """The alias, unless it is a URL."""
        return None if "://" in self.database else self.database


def read_settings() -> DjangoSettings:
    """Read the setting."""
    given: Any = getattr(settings, "ONEFOLD", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured('ONEFOLD must be a dictionary like {"DATABASE": "default"}.')
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in cast("Mapping[str, Any]", given).items():
        if name not in KNOWN:
            raise ImproperlyConfigured(f"ONEFOLD has no {name!r}. It knows {', '.join(KNOWN)}.")
        (options if name in OPTIONS else values)[name.lower()] = value
    return _checked(DjangoSettings(**values, options=options))


def _checked(made: DjangoSettings) -> DjangoSettings:
    database: Any = made.database
    if not isinstance(database, str) or made.alias not in (None, *connections.settings):
        raise ImproperlyConfigured(
            'ONEFOLD["DATABASE"] must be an alias of DATABASES, or a URL like'
            " postgresql://app@db/orders."
        )
    if made.unconfigured not in ("refuse", "ignore"):
        raise ImproperlyConfigured('ONEFOLD["UNCONFIGURED"] must be "refuse" or "ignore".')
    modules: Any = made.autodiscover
    if isinstance(modules, str) or not isinstance(modules, Sequence):
        raise ImproperlyConfigured(
            'ONEFOLD["AUTODISCOVER"] must be a list of module names like ["jobs", "tasks"].'
        )
    return made


PARTS: Final = {
    "NAME": "dbname",
    "USER": "user",
    "PASSWORD": "password",
    "HOST": "host",
    "PORT": "port",
}
"""The names of libpq."""

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
"""Options of Django or psycopg that are not passed on."""


def url_of(alias: str) -> str:
    """The URL by which Onefold opens connections of its own to the same database."""
    given = connections.settings[alias]
    match connections[alias].vendor:
        case "sqlite":
            return _sqlite(alias, given["NAME"])
        case "postgresql":
            return _postgresql(given)
        case vendor:
            raise ImproperlyConfigured(
                f"Onefold stores its tables in PostgreSQL or SQLite, and the database {alias!r} is"
                f' {vendor}. Name another one in ONEFOLD["DATABASE"].'
            )


def is_in_memory(alias: str) -> bool:
    """True for a database that only its own connection can use: Django's tests on SQLite."""
    connection: Any = connections[alias]
    name = connections.settings[alias]["NAME"]
    return connection.vendor == "sqlite" and bool(connection.creation.is_in_memory_db(name))


def _sqlite(alias: str, name: str | Path) -> str:
    if is_in_memory(alias):
        raise ImproperlyConfigured(
            f"The database {alias!r} is in memory, where Onefold's own connections do not reach it."
            f' For tests, name a file: DATABASES["{alias}"]["TEST"] = {{"NAME": "test.sqlite3"}}.'
        )
    if str(name).startswith("file:"):
        raise ImproperlyConfigured(
            f"The database {alias!r} is named by a URI. Name the file by its path."
        )
    return f"sqlite:///{quote(str(Path(name).absolute()))}"


def _postgresql(given: Mapping[str, Any]) -> str:
    options: dict[str, Any] = dict(given.get("OPTIONS") or {})
    parts = {PARTS[name]: given[name] for name in PARTS if given.get(name)}
    parts |= {name: value for name, value in options.items() if name not in NOT_OF_LIBPQ}
    if role := options.get("assume_role"):
        escaped = role.replace("\\", "\\\\").replace(" ", "\\ ")
        parts["options"] = f"{parts.get('options', '')} -c role={escaped}".strip()
    return f"postgresql:///?{urlencode(parts, quote_via=quote)}"


T = TypeVar("T")


@lru_cache(maxsize=1)
def get_onefold() -> Onefold:
    """The Onefold of this project; always the same, so that jobs may be declared with it."""
    return onefold_of(read_settings())


def onefold_of(settings: DjangoSettings) -> Onefold:
    """Make an Onefold from the setting."""
    onefold = (
        Onefold(settings.database, **settings.options)
        if settings.alias is None
        else AliasOnefold(settings.alias, **settings.options)
    )
    onefold.context.hooks.around.append(_with_fresh_connections)
    return onefold


class AliasOnefold(Onefold):
    """Onefold on a database that Django knows by an alias."""

    def _open(self, url: str, opened: Callable[[str], Database]) -> Store:
        self._alias_store = AliasStore(url, opened)
        return self._alias_store

    def disconnect(self) -> None:
        """Close every connection. The next call opens another one."""
        self.context.duplicate_log.flush()
        self._alias_store.disconnect()


class AliasStore:
    """The current database of an alias.

    Jobs are declared when modules are imported. Afterwards a test runner changes the database of
    the alias, also in each of its parallel processes. The first database must not be used then:
    tests must not change it.
    """

    def __init__(self, alias: str, opened: Callable[[str], Database]) -> None:
        """`opened` opens the database of a URL."""
        self._alias = alias
        self._opened = opened
        self._databases: dict[tuple[Any, ...], Database] = {}
        self._lock = threading.Lock()

    @property
    def database(self) -> Database:
        """The database of the alias as it is now."""
        settings = connections.settings[self._alias]
        place = tuple(settings.get(name) for name in PARTS)
        found = self._databases.get(place)
        if found is None:
            with self._lock:
                found = self._databases.get(place) or self._opened(url_of(self._alias))
                self._databases[place] = found
        return found

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation in a transaction."""
        return self.database.transact(build, write=write)

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """`transact`, awaited."""
        return await self.database.atransact(build, write=write)

    async def alook(self, build: Build[T]) -> T:
        """Read a few rows by their keys, in one statement, awaited."""
        return await self.database.alook(build)

    def batch(self, item: Item[Any, T]) -> T:
        """Run an item of a plural operation, committed together with items of other callers."""
        return self.database.batch(item)

    async def abatch(self, item: Item[Any, T]) -> T:
        """`batch`, awaited."""
        return await self.database.abatch(item)

    def disconnect(self) -> None:
        """Close all databases."""
        with self._lock:
            databases, self._databases = self._databases, {}
        for database in databases.values():
            database.close()


@contextmanager
def _with_fresh_connections(job: Job) -> Generator[None]:
    """Close old and broken connections before and after a handler, as Django does for a request.

    In an event loop, Django has no connections.
    """
    del job
    if _in_event_loop():
        yield
        return
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
