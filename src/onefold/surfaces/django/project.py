"""The Onefold of a Django project: one for a process, wherever Django's settings point to."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from django.db import close_old_connections, connections

from onefold.app import Onefold
from onefold.calls.procedure import Conductor
from onefold.surfaces.django.alias import PARTS, url_of
from onefold.surfaces.django.settings import Settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onefold.databases import Clock, Database
    from onefold.model.job import Job


@lru_cache(maxsize=1)
def get_onefold() -> Onefold:
    """The Onefold of this project; always the same, so that jobs may be declared with it."""
    return onefold_of(read_settings())


def onefold_of(settings: Settings) -> Onefold:
    """A new one, as the setting says."""
    onefold = (
        Onefold(settings.database, **settings.options)
        if settings.alias is None
        else AliasOnefold(settings.alias, **settings.options)
    )
    onefold.hooks.around.append(_with_fresh_connections)
    return onefold


class AliasOnefold(Onefold):
    """Onefold on a database that Django knows by an alias."""

    def _conducts(self, url: str, opened: Callable[[str], Database], clock: Clock) -> Conductor:
        self._following = Following(url, opened, clock)
        return self._following

    def write_notes(self) -> None:
        """Write the notes of suppressed duplicates that wait in memory."""
        self._following.suppressing.flush()

    def disconnect(self) -> None:
        """Close every connection. The next call opens another one."""
        self.write_notes()
        self._following.disconnect()


class Following(Conductor):
    """Works on the database that an alias means at the time.

    Jobs are declared when modules are imported; a test runner gives the alias a database of its own
    afterwards, and each of its parallel processes another one. What was opened before must not be
    used then: it is the database of the people who run the tests.
    """

    def __init__(self, alias: str, opened: Callable[[str], Database], clock: Clock) -> None:
        """Nothing is opened yet; `opened` opens the database of a URL."""
        # Nobody sees this None: who asks for the database asks below.
        super().__init__(cast("Database", None), clock)
        self._alias = alias
        self._opened = opened
        self._databases: dict[tuple[Any, ...], Database] = {}
        self._lock = threading.Lock()

    @property
    def database(self) -> Database:
        """Of the alias as it is now."""
        settings = connections.settings[self._alias]
        place = tuple(settings.get(name) for name in PARTS)
        found = self._databases.get(place)
        if found is None:
            with self._lock:
                found = self._databases.get(place) or self._opened(url_of(self._alias))
                self._databases[place] = found
        return found

    def disconnect(self) -> None:
        """Close what is open."""
        with self._lock:
            databases, self._databases = self._databases, {}
        for database in databases.values():
            database.close()


@contextmanager
def _with_fresh_connections(job: Job) -> Generator[None]:
    """Around a handler in a thread, as Django does around a request.

    A connection that the server has closed since is opened anew, and one that is too old is closed.
    In an event loop there are none.
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
