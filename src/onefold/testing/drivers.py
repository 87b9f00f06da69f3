"""Reports the statements of database drivers while handlers are checked.

sqlite3, aiosqlite, psycopg and asyncpg, and SQLAlchemy and Django on top of them. Writes of
Onefold are given to the check.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
import threading
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakSet

from onefold.errors import UsageError
from onefold.testing import http_clients
from onefold.testing.points import (
    Crash,
    Passage,
    Patch,
    StatementPassage,
    close_cursors,
    current,
    inside,
    is_unreported,
    place_of,
    reported,
    seen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onefold.databases import Database


@contextmanager
def traced(on_write: Callable[[Database], None]) -> Generator[Callable[[], bool]]:
    """Report what the imported drivers and HTTP clients do.

    A connection of sqlite3 reports if it is opened meanwhile. Connections of the other drivers
    report always. `on_write` is called before a handler writes with an Onefold. The value is a
    function that adds what was imported since then, and returns whether there is any.
    """
    with ExitStack() as patches:

        def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
            original = getattr(owner, name)
            setattr(owner, name, make(original))
            patches.callback(setattr, owner, name, original)

        for module in (sqlite3, sys.modules["sqlite3.dbapi2"]):
            patch(module, "connect", _sqlite_connect)
        patch(threading.Thread, "start", _thread_start)
        patch(ThreadPoolExecutor, "submit", _pool_submit)
        missing: dict[str, Callable[[Any, Patch], None]] = {
            "onefold.databases.postgres.database": partial(_onefold, "PostgresDatabase", on_write),
            "onefold.databases.sqlite.database": partial(_onefold, "SqliteDatabase", on_write),
            **_LIBRARY_PATCHES,
        }

        def patch_imported() -> bool:
            found = [name for name in missing if name in sys.modules]
            for name in found:
                missing.pop(name)(sys.modules[name], patch)
            return bool(found)

        patch_imported()
        yield patch_imported


def _thread_start(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def wrapper(self: Any) -> Any:
        if _is_of_handler():
            self.run = partial(copy_context().run, _until_crash, self.run)
        return start(self)

    return wrapper


def _pool_submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(submit)
    def wrapper(self: Any, function: Any, /, *args: Any, **options: Any) -> Any:
        if _is_of_handler():
            return submit(self, copy_context().run, function, *args, **options)
        return submit(self, function, *args, **options)

    return wrapper


def _is_of_handler() -> bool:
    """Whether a handler begins a thread, and not a library: libraries share theirs."""
    frame = sys._getframe(2) if current.get() is not None else None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith(_THREADING):
        frame = frame.f_back
    return frame is not None and place_of(frame.f_code.co_filename) == "application"


def _until_crash(run: Callable[[], None]) -> None:
    with suppress(Crash):
        run()


_THREADING: Final = (str(Path(asyncio.__file__).parent), str(Path(futures.__file__).parent))

_BEFORE_THREAD: Final = 4
"""Parameters of `sqlite3.connect` that are before check_same_thread."""


def _sqlite_connect(connect: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(connect)
    def wrapper(*args: Any, **options: Any) -> Any:
        factory = options.pop("factory", sqlite3.Connection)
        opener = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        is_of_onefold = place_of(opener.f_code.co_filename) == "onefold"
        if not is_of_onefold and len(args) <= _BEFORE_THREAD:
            options["check_same_thread"] = False  # the check ends its transaction
        connection = connect(*args, factory=_traced(_TracedConnection, factory), **options)
        connection.is_of_onefold = is_of_onefold
        if not is_of_onefold:
            with suppress(sqlite3.Error):  # no power cut is simulated
                sqlite3.Connection.execute(connection, "pragma synchronous = off")
        return connection

    return wrapper


@contextmanager
def refuse_unseen_connections() -> Generator[None]:
    """Raise an error if a connection of sqlite3 that was opened before has changed rows.

    SQLAlchemy and Django report what their connections do. Those of Onefold have a class of their
    own: its threads write notes and leases at any time.
    """
    before = [
        (each, changes)
        for each in gc.get_referrers(sqlite3.Connection)  # an object refers to its class
        if type(each) is sqlite3.Connection and (changes := _changes(each)) is not None
    ]
    seen.clear()
    yield
    for connection, changes in before:
        if id(connection) not in seen and _changes(connection) not in {None, changes}:
            raise UsageError(
                "The handler uses a connection of sqlite3 that was opened before the check, so its"
                " statements are not seen. Open the connection in the handler."
            )


def _changes(connection: sqlite3.Connection) -> int | None:
    try:
        return connection.total_changes
    except sqlite3.Error:
        return None  # closed, or of another thread


class _Statements:
    """The methods of connections and cursors of sqlite3 that are reported."""

    def execute(self, *args: Any) -> Any:
        return self._report(_of(super()).execute, args)

    def executemany(self, *args: Any) -> Any:
        return self._report(_of(super()).executemany, args)

    def executescript(self, *args: Any) -> Any:
        return self._report(_of(super()).executescript, args)

    def _report(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if is_unreported():
            return call(*args)
        passage = StatementPassage(args[0], getattr(self, "connection", self))
        return passage.run(partial(call, *args))


def _of(parent: Any) -> Any:
    return parent


class _TracedConnection(_Statements):
    """Reports its statements, and ends them when it is closed."""

    is_of_onefold: bool = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        cursor = _of(super()).cursor(_traced(_Statements, factory))
        self._cursors.add(cursor)
        return cursor

    def commit(self) -> None:
        StatementPassage("commit", self).run(_of(super()).commit)

    def close(self) -> None:
        close_cursors(self._cursors)
        _of(super()).close()

    def __del__(self) -> None:
        # A crash leaves it open. Since Python 3.13, sqlite3 warns of that.
        with suppress(sqlite3.Error):
            _of(super()).close()

    def __exit__(self, kind: object, error: object, trace: object) -> Literal[False]:
        # The original one commits without a call of `commit`.
        if kind is None:
            self.commit()
        else:
            _of(self).rollback()
        return False


@lru_cache(maxsize=64)
def _traced(reports: type, base: type) -> Any:
    """A subclass that reports its statements."""
    return type(base.__name__, (reports, base), {})


def _onefold(name: str, on_write: Callable[[Database], None], module: Any, patch: Patch) -> None:
    def passage(self: Any, *_args: Any, write: bool = True, **_options: Any) -> Passage:
        if write and not is_unreported():
            on_write(self)
        return Passage("statement", "")  # without a line, so it is not reported

    for method in _WRITES:
        patch(getattr(module, name), method, reported(passage))


_WRITES: Final = (
    *("transact", "atransact", "batch", "abatch"),
    *("handler_transaction", "ahandler_transaction"),
)


def _aiosqlite(module: Any, patch: Patch) -> None:
    def passage(self: Any, function: Any, *args: Any, **_options: Any) -> StatementPassage:
        name = getattr(function, "__name__", "").removeprefix("_")
        text = name if name == "commit" else args[0] if name.startswith("execute") else "set"
        return StatementPassage(text, self._connection)

    patch(module.Connection, "_execute", reported(passage))


_COMMITS: Final = frozenset({"_commit_gen", "_exit_gen"})
_EXECUTES: Final = frozenset(
    {"_execute_gen", "_executemany_gen_pipeline", "_executemany_gen_no_pipeline"}
)


def _psycopg(module: Any, patch: Patch) -> None:
    def text_of(generator: Any) -> object:
        name, values = generator.__name__, generator.gi_frame.f_locals
        if name in _COMMITS:
            fails = name == "_exit_gen" and values.get("exc_type") is not None
            inner = getattr(values.get("self"), "_outer_transaction", True) is False
            return "rollback" if fails else "release" if inner else "commit"
        return values.get("query", "set") if name in _EXECUTES else "set"

    def passage(self: Any, generator: Any, *_args: Any, **_options: Any) -> StatementPassage:
        return StatementPassage(text_of(generator), self)

    patch(module.Connection, "wait", reported(passage))
    patch(module.AsyncConnection, "wait", reported(passage))


def _unreported(method: Any) -> Any:
    @wraps(method)
    async def wrapper(self: Any, *args: Any, **options: Any) -> Any:
        # A pool waits for it when it is closed, also after a crash.
        token = inside.set(True)
        try:
            return await method(self, *args, **options)
        finally:
            inside.reset(token)

    return wrapper


def _asyncpg(module: Any, patch: Patch) -> None:
    def passage(self: Any, query: str, *_args: Any, **_options: Any) -> StatementPassage:
        return StatementPassage(query, self)

    def prepared(self: Any, *_args: Any) -> StatementPassage:
        return StatementPassage(self._query, self._connection)

    for name in ("execute", "_execute", "_executemany"):
        patch(module.connection.Connection, name, reported(passage))
    patch(module.connection.Connection, "reset", _unreported)
    statement = module.prepared_stmt.PreparedStatement
    patch(statement, "_PreparedStatement__do_execute", reported(prepared))
    for name in ("_bind_exec", "_bind"):
        patch(module.cursor.BaseCursor, name, reported(prepared))


def _sqlalchemy_pool(module: Any, patch: Patch) -> None:
    def make(checkin: Any) -> Any:
        @wraps(checkin)
        def wrapper(self: Any, *args: Any) -> Any:
            # Its pool has rolled it back, and keeps it: it is not closed by a crash.
            if (trace := current.get()) is not None:
                trace.connections.pop(id(self.driver_connection), None)
            return checkin(self, *args)

        return wrapper

    patch(module.base._ConnectionRecord, "checkin", make)  # noqa: SLF001


def _sqlalchemy_sqlite(module: Any, patch: Patch) -> None:
    def make(method: Any) -> Any:
        @wraps(method)
        def wrapper(self: Any, cursor: Any, statement: str, *args: Any) -> Any:
            if self.is_async:
                return method(self, cursor, statement, *args)

            def call() -> Any:
                method(self, cursor, statement, *args)
                return cursor  # to be closed after a crash; SQLAlchemy does not read it

            return StatementPassage(statement, cursor.connection).run(call)

        return wrapper

    def commit(self: Any, connection: Any) -> StatementPassage:
        return StatementPassage("set" if self.is_async else "commit", connection)

    # Pools have connections of sqlite3 that were opened before.
    dialect = module.pysqlite.SQLiteDialect_pysqlite
    for name in ("do_execute", "do_executemany", "do_execute_no_params"):
        patch(dialect, name, make)
    patch(dialect, "do_commit", reported(commit))


def _django_sqlite(module: Any, patch: Patch) -> None:
    def passage(self: Any, query: str, *_args: Any) -> StatementPassage:
        return StatementPassage(query, self.connection)

    def commit(self: Any) -> StatementPassage:
        return StatementPassage("commit", self.connection)

    # A thread may have a connection that was opened before.
    for name in ("execute", "executemany"):
        patch(module.SQLiteCursorWrapper, name, reported(passage))
    patch(module.DatabaseWrapper, "_commit", reported(commit))


_LIBRARY_PATCHES: Final[dict[str, Callable[[Any, Patch], None]]] = {
    "aiosqlite": _aiosqlite,
    "psycopg": _psycopg,
    "asyncpg": _asyncpg,
    "sqlalchemy.dialects.sqlite": _sqlalchemy_sqlite,
    "sqlalchemy.pool": _sqlalchemy_pool,
    "django.db.backends.sqlite3.base": _django_sqlite,
    **http_clients.PATCHES,
}
