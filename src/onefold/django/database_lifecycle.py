"""Onefold's part in what Django does to a whole database: flush it, clone it, destroy it.

`manage.py flush` and `TransactionTestCase` flush, the test runner clones and destroys. Django sends
no signal for any of them, so the methods of a connection that do it are wrapped when it connects.
"""

from __future__ import annotations

import threading
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from onefold.django.instance import AliasOnefold, get_onefold, read_settings
from onefold.operations.statement import Sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.backends.base.base import BaseDatabaseWrapper

_connections: Final[WeakSet[BaseDatabaseWrapper]] = WeakSet()
"""Those of all threads: `django.db.connections` shows a thread only its own."""
_lock: Final = threading.Lock()


def include_onefold(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Wrap the methods of a connection. Receives `connection_created`, at each connect."""
    with _lock:
        _connections.add(connection)
    creation: Any = connection.creation
    ops: Any = connection.ops
    if "sql_flush" not in vars(ops):
        ops.sql_flush = _flushing(connection, ops.sql_flush)
        creation.clone_test_db = _closing(connection, creation.clone_test_db)
        creation.destroy_test_db = _closing(connection, creation.destroy_test_db)


def _closing(connection: BaseDatabaseWrapper, method: Callable[..., Any]) -> Callable[..., Any]:
    """Close the connections first: PostgreSQL does not clone or drop a database that has some."""

    @wraps(method)
    def wrapper(*args: Any, **options: Any) -> Any:
        onefold = get_onefold()
        if isinstance(onefold, AliasOnefold):
            onefold.disconnect()
        _close_in_all_threads(connection.settings_dict["NAME"])
        given = signature(method).bind(*args, **options).arguments
        if connection.vendor == "sqlite" and not given.get("keepdb"):
            _remove_log(connection, given.get("suffix"))
        return method(*args, **options)

    return wrapper


def _remove_log(connection: BaseDatabaseWrapper, suffix: str | None) -> None:
    """Remove the write-ahead log that a process which was killed has left to a file.

    Django removes the file alone, and SQLite would apply the log to the next file of that name.
    """
    creation = connection.creation
    settings = (
        connection.settings_dict if suffix is None else creation.get_test_db_clone_settings(suffix)
    )
    for ending in ("-wal", "-shm"):
        Path(f"{settings['NAME']}{ending}").unlink(missing_ok=True)


def _close_in_all_threads(name: str) -> None:
    """The threads of handlers keep connections of Django's for the next job."""
    with _lock:
        found = [each for each in _connections if each.settings_dict["NAME"] == name]
    for each in found:
        each.inc_thread_sharing()
        try:
            each.close()
        finally:
            each.dec_thread_sharing()


def _flushing(
    connection: BaseDatabaseWrapper, method: Callable[..., list[str]]
) -> Callable[..., list[str]]:
    """Django empties the tables of models, and Onefold has none."""

    @wraps(method)
    def wrapper(*args: Any, **options: Any) -> list[str]:
        statements = method(*args, **options)
        settings, onefold = read_settings(), get_onefold()
        if settings.alias != connection.alias or not isinstance(onefold, AliasOnefold):
            return statements
        # A note that is written afterwards would be of a key that the next test uses.
        onefold.context.duplicate_log.flush()
        schema = settings.options.get("schema", "onefold")
        sql = Sql("sqlite" if connection.vendor == "sqlite" else "postgres", schema=schema)
        with connection.cursor() as cursor:
            cursor.execute(sql("empty_tables").text)
            return [*statements, *(row[0] for row in cursor.fetchall())]

    return wrapper
