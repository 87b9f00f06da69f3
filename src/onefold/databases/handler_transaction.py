"""Transactions that are begun for a handler, and committed: on our connections or its own.

What is begun is begun and ended by the means of its own library, so that this knows of it. Nobody
else's transaction is joined: the one who commits it would be somebody else, too.
"""

from __future__ import annotations

import time
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from onefold.databases import borrowed as refusals
from onefold.databases.borrowed import borrow
from onefold.errors import DatabaseBusy, UsageError, WrongConnection
from onefold.operations.statement import Statement

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from types import TracebackType
    from typing import Self

    from onefold.databases import Build, Database
    from onefold.databases.borrowed import Borrowed
    from onefold.operations.statement import Operation, Sql

T = TypeVar("T")

TRIES: Final = 100
"""Connections of a pool that may turn out to be dead, one after the other: more than most have."""
UNUSED: Final = 60.0
"""Seconds for which a transaction may wait for its first statement at no risk to the attempt."""
IDLE_CLASS: Final = "25P"
"""SQLSTATEs by which the server ends a session whose transaction took too long."""

Blocking: TypeAlias = AbstractContextManager[Any]
Awaited: TypeAlias = AbstractAsyncContextManager[Any]


class Given(msgspec.Struct):
    """A connection or session of a request's own. A transaction that it has begun is ours to end.

    Frameworks give it to several functions of one request: one that has read, say to find out who
    asks, has begun.
    """

    lent: Any
    is_spent: bool = False
    """Whether such a transaction was joined: once it has ended, what they wrote is gone."""

    def has_begun(self) -> bool:
        """Whether there is a transaction to join, for this one time."""
        if self.is_spent:
            raise DatabaseBusy(
                "the session of this request was rolled back, with what others wrote in it",
                waited=timedelta(0),
            )
        self.is_spent = _has_begun(self.lent)
        return self.is_spent


class OpenBlock(msgspec.Struct):
    """A Django connection inside an atomic block: the transaction is a savepoint of that block."""

    connection: Any


class _RolledBack(Exception):
    """Ends a transaction that is not committed."""


def _ended(*, commit: bool) -> tuple[Any, Any, None]:
    """How the block of a context manager ends."""
    return (None, None, None) if commit else (_RolledBack, _RolledBack(), None)


innermost: ContextVar[HandlerTransaction | None] = ContextVar("onefold_begun", default=None)
"""The transaction whose block this is. Tasks that are started inside inherit it, and threads with a
copy of the context, so it says itself when it is over."""


def begun_here(database: Database | None = None) -> HandlerTransaction | None:
    """The innermost transaction of ours that is open where this is called, on this database."""
    here = innermost.get()
    while here is not None and (here.is_over or not here.is_on(database)):
        here = here.outer
    return here


class HandlerTransaction:
    """A transaction that is open, and what of ours is written into it."""

    def __init__(
        self,
        connection: Any,
        borrowed: Borrowed,
        database: Database,
        ending: Blocking | Awaited | None = None,
    ) -> None:
        """`connection` is for the handler; leaving `ending` commits, or rolls back."""
        self.connection = connection
        self.borrowed = borrowed
        self.blocking: bool = not hasattr(ending, "__aexit__")
        """True if the transaction is used and ended by calls that block."""
        self._ending: Any = ending
        self.outer: HandlerTransaction | None = None
        self.is_over: bool = False
        self._database = database
        self._answers: int | None = getattr(connection, "answers", None)
        self._began = time.monotonic()

    def died_unused(self, error: BaseException) -> bool:
        """True where our connection was lost before it answered the handler's first statement.

        Not where the server ended it for being idle, or the handler took long to use it: that would
        happen again.
        """
        if self._answers is None or not self.connection.closed:
            return False
        idle = (getattr(error, "sqlstate", None) or "").startswith(IDLE_CLASS)
        late = time.monotonic() - self._began > UNUSED
        return self.connection.answers == self._answers and not idle and not late

    def enter(self) -> None:
        """What follows in this context is inside of it, until it is over."""
        if (here := begun_here()) is not self:
            self.outer = here
        innermost.set(self)

    def leave(self) -> None:
        """It is over, here and wherever it was entered."""
        self.is_over = True
        if innermost.get() is self:
            innermost.set(self.outer)

    def end(self, *, commit: bool) -> None:
        """Commit, or roll back. What has ended before stays as it is."""
        self.__exit__(*_ended(commit=commit))

    async def aend(self, *, commit: bool) -> None:
        """`end`, awaited."""
        await self.__aexit__(*_ended(commit=commit))

    def __enter__(self) -> Self:
        """It has begun already; leaving the block ends it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back after an error."""
        self.leave()
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        """It has begun already; leaving the block ends it."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back after an error."""
        self.leave()
        ending, self._ending = self._ending, None
        if ending is not None:
            await ending.__aexit__(kind, error, trace)

    def is_on(self, database: Database | None) -> bool:
        """Whether it is a transaction of this database, whoever has opened that; None is any."""
        own = self._database
        if database is None or own is database:
            return True
        return (own.label, own.sql.schema) == (database.label, database.sql.schema)

    def execute(self, build: Build[T]) -> T:
        """Run an operation of ours, after what the handler has written."""
        self._refuse_ended()
        if _is_a(self.connection, _SESSIONS):
            self.connection.flush()
        return self.borrowed.transact(build)

    async def aexecute(self, build: Build[T]) -> T:
        """`execute`, awaited."""
        self._refuse_ended()
        if _is_a(self.connection, _SESSIONS):
            await self.connection.flush()
        return await self.borrowed.atransact(build)

    def _refuse_ended(self) -> None:
        """What was committed by hand is committed apart from what we would add.

        Django says so itself. SQLAlchemy does not begin before the first statement, but knows.
        """
        library = {package for package, _ in _names(self.connection)}
        if "sqlalchemy" in library:
            has_ended = not self.connection.in_transaction()
        else:
            has_ended = "django" not in library and self.borrowed.failed()
        if has_ended:
            raise UsageError(
                "The transaction has ended inside its block: it was committed or rolled back there,"
                " or an error has ended it. Leave that to the block; where a session must send its"
                " rows before, call flush() instead of commit()."
            )


def begin(target: object, database: Database) -> HandlerTransaction:
    """Begin a transaction; use it in a `with`, or end it.

    It begins on a connection that has answered: those that a pool gives and that turn out to be
    dead are replaced.
    """
    transaction = _alive(target, database)
    transaction.enter()
    return transaction


def _alive(target: object, database: Database) -> HandlerTransaction:
    for left in reversed(range(_tries(target))):
        try:
            with ExitStack() as opened:
                connection = opened.enter_context(_begin(target, database))
                borrowed = borrow(connection, database)
                if target is not None:
                    borrowed.transact(_first(connection), write=False)
                return HandlerTransaction(connection, borrowed, database, opened.pop_all())
        except Exception as error:
            if not left or not _is_lost(error, database):
                raise
    raise AssertionError("the last try has raised")


async def abegin(target: object, database: Database) -> HandlerTransaction:
    """`begin`, awaited; for an `async with`."""
    transaction = await _aalive(target, database)
    transaction.enter()
    return transaction


async def _aalive(target: object, database: Database) -> HandlerTransaction:
    for left in reversed(range(_tries(target))):
        try:
            async with AsyncExitStack() as opened:
                connection = await opened.enter_async_context(_abegin(target, database))
                borrowed = borrow(connection, database)
                if target is not None:
                    await borrowed.atransact(_first(connection), write=False)
                return HandlerTransaction(connection, borrowed, database, opened.pop_all())
        except Exception as error:
            if not left or not _is_lost(error, database):
                raise
    raise AssertionError("the last try has raised")


def _tries(target: object) -> int:
    """One for a session that has begun: what it has written is lost with its connection."""
    has_begun = isinstance(target, Given) and _has_begun(target.lent)
    return 1 if has_begun or isinstance(target, OpenBlock) else TRIES


def _is_lost(error: Exception, database: Database) -> bool:
    if database.sql.dialect == "sqlite":
        return False
    from onefold.databases.postgres.errors import is_lost

    return is_lost(error)


def is_blocking(target: object) -> bool:
    """Whether `begin` is for a target, or `abegin`; `WrongConnection` where neither is."""
    target = target.lent if isinstance(target, Given) else target
    names = _names(target)
    if any(name in _BLOCKING for name in names):
        return True
    if any(name in _AWAITED for name in names):
        return False
    raise _unknown(target)


def is_target(value: object) -> bool:
    """Whether a transaction can be begun on it."""
    try:
        is_blocking(value)
    except WrongConnection:
        return False
    return True


def current_target(target: object) -> object:
    """The target, or what it returns if it is a function that returns one."""
    if target is not None and callable(target) and not is_target(target):
        return target()
    return target


def refuse_thread_bound(target: object) -> None:
    """Refuse what cannot go from one thread to another, as what is awaited does."""
    if any(package == "django" for package, _ in _names(target)):
        raise WrongConnection(
            target,
            "belongs to the thread that has opened it, and nothing that is awaited stays in one."
            " Make the handler a plain function, or give an async pool or engine.",
        )


def _first(connection: object) -> Build[None]:
    """What tells that the connection is to our database, and that it answers.

    The first is asked with the first operation on a connection. SQLAlchemy begins with the first
    statement; the others have said `begin`, and were answered.
    """

    def build(sql: Sql) -> Operation[None]:
        if sql.dialect == "postgres" and any(
            name == "sqlalchemy" for name, _ in _names(connection)
        ):
            yield Statement("answer", "select 1", {})

    return build


def _begin(target: object, database: Database) -> Blocking:
    if target is None:
        return _own(database)
    if isinstance(target, Given):
        if target.has_begun():
            return _session(target.lent)
        target = target.lent
    for name in _names(target):
        if name in _BLOCKING:
            return _BLOCKING[name](target)
        if name in _AWAITED:
            raise WrongConnection(
                target, "is async. Use it with `async with`, in an async handler."
            )
    raise _unknown(target)


def _abegin(target: object, database: Database) -> Awaited:
    if target is None:
        return _aown(database)
    if isinstance(target, Given):
        if target.has_begun():
            return _async_session(target.lent)
        target = target.lent
    for name in _names(target):
        if name in _AWAITED:
            return _AWAITED[name](target)
        if name in _BLOCKING:
            raise WrongConnection(
                target, "is sync. Use it with `with`, in a handler that is not a coroutine."
            )
    raise _unknown(target)


def _own(database: Database) -> Blocking:
    if database.sql.dialect == "sqlite":
        from onefold.databases.sqlite import handler_transaction

        return handler_transaction.own(database)
    from onefold.databases.postgres import database as transactions

    return transactions.own(database)


def _aown(database: Database) -> Awaited:
    if database.sql.dialect == "sqlite":
        from onefold.databases.sqlite import handler_transaction

        return handler_transaction.aown(database)
    from onefold.databases.postgres import database as transactions

    return transactions.aown(database)


def _names(target: object) -> list[tuple[str, str]]:
    kinds = type(target).__mro__
    return [(kind.__module__.partition(".")[0], kind.__name__) for kind in kinds]


def _is_a(target: object, names: frozenset[tuple[str, str]]) -> bool:
    return not names.isdisjoint(_names(target))


def _has_begun(lent: Any) -> bool:
    return _is_a(lent, _SESSIONS) and lent.in_transaction()


def _unknown(target: object) -> WrongConnection:
    return WrongConnection(target, refusals.instead_of(_names(target)))


def _refuse_begun(target: object, *, begun: bool) -> None:
    if begun:
        raise WrongConnection(
            target,
            "has an open transaction, which other code began and will end. Commit it before, or"
            " give a connection that is free.",
        )


# --- sync -----------------------------------------------------------------------------------------


def _sqlite(connection: Any) -> Blocking:
    from onefold.databases.sqlite import handler_transaction

    return handler_transaction.lent(connection)


@contextmanager
def _psycopg(connection: Any) -> Generator[Any]:
    _refuse_begun(connection, begun=bool(connection.info.transaction_status))
    with connection.transaction():
        yield connection


@contextmanager
def _psycopg_pool(pool: Any) -> Generator[Any]:
    with pool.connection() as connection, connection.transaction():
        yield connection


@contextmanager
def _sqlalchemy(lent: Any) -> Generator[Any]:
    """A connection or a session."""
    _refuse_begun(lent, begun=lent.in_transaction())
    with lent.begin():
        yield lent


@contextmanager
def _session(session: Any) -> Generator[Any]:
    """A session that has begun."""
    with session.get_transaction():
        yield session


def _scoped(registry: Any) -> Blocking:
    """The session of this thread."""
    return _sqlalchemy(registry())


def _begins(maker: Any) -> Any:
    """An engine or a maker of sessions: what it gives has begun."""
    return maker.begin()


@contextmanager
def _django(connection: Any) -> Generator[Any]:
    from onefold.databases.borrowed.django import atomic

    _refuse_begun(connection, begun=connection.in_atomic_block)
    if connection.connection is not None and not connection.is_usable():
        connection.close()  # Django connects again by itself.
    with atomic(connection):
        yield connection


@contextmanager
def _django_savepoint(target: OpenBlock) -> Generator[Any]:
    from onefold.databases.borrowed.django import atomic

    with atomic(target.connection, durable=False):
        yield target.connection


_BLOCKING: Final[dict[tuple[str, str], Callable[[Any], Blocking]]] = {
    ("sqlite3", "Connection"): _sqlite,
    ("psycopg", "Connection"): _psycopg,
    ("psycopg_pool", "ConnectionPool"): _psycopg_pool,
    ("sqlalchemy", "Connection"): _sqlalchemy,
    ("sqlalchemy", "Session"): _sqlalchemy,
    ("sqlalchemy", "scoped_session"): _scoped,
    ("sqlalchemy", "Engine"): _begins,
    ("sqlalchemy", "sessionmaker"): _begins,
    ("django", "BaseDatabaseWrapper"): _django,
    ("django", "ConnectionProxy"): _django,
    ("onefold", "OpenBlock"): _django_savepoint,
}
"""By the package and the name of a class that the target is, or comes from."""

_SESSIONS: Final = frozenset({("sqlalchemy", "Session"), ("sqlalchemy", "AsyncSession")})


# --- async ----------------------------------------------------------------------------------------


def _aiosqlite(connection: Any) -> Awaited:
    from onefold.databases.sqlite import handler_transaction

    return handler_transaction.alent(connection)


@asynccontextmanager
async def _async_psycopg(connection: Any) -> AsyncGenerator[Any]:
    _refuse_begun(connection, begun=bool(connection.info.transaction_status))
    async with connection.transaction():
        yield connection


@asynccontextmanager
async def _async_psycopg_pool(pool: Any) -> AsyncGenerator[Any]:
    async with pool.connection() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def _asyncpg(connection: Any) -> AsyncGenerator[Any]:
    _refuse_begun(connection, begun=connection.is_in_transaction())
    async with connection.transaction():
        yield connection


@asynccontextmanager
async def _asyncpg_pool(pool: Any) -> AsyncGenerator[Any]:
    async with pool.acquire() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def _async_sqlalchemy(lent: Any) -> AsyncGenerator[Any]:
    _refuse_begun(lent, begun=lent.in_transaction())
    async with lent.begin():
        yield lent


@asynccontextmanager
async def _async_session(session: Any) -> AsyncGenerator[Any]:
    """A session that has begun. The transaction of its sync twin is the one that can be entered."""
    block = session.sync_session.get_transaction().__enter__()

    def end(_: Any, *how: Any) -> None:
        block.__exit__(*how)

    try:
        yield session
    except BaseException as error:
        await session.run_sync(end, type(error), error, None)
        raise
    await session.run_sync(end, None, None, None)


def _async_scoped(registry: Any) -> Awaited:
    """The session of this task."""
    return _async_sqlalchemy(registry())


_AWAITED: Final[dict[tuple[str, str], Callable[[Any], Awaited]]] = {
    ("aiosqlite", "Connection"): _aiosqlite,
    ("psycopg", "AsyncConnection"): _async_psycopg,
    ("psycopg_pool", "AsyncConnectionPool"): _async_psycopg_pool,
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
    ("asyncpg", "Pool"): _asyncpg_pool,
    ("sqlalchemy", "AsyncConnection"): _async_sqlalchemy,
    ("sqlalchemy", "AsyncSession"): _async_sqlalchemy,
    ("sqlalchemy", "async_scoped_session"): _async_scoped,
    ("sqlalchemy", "AsyncEngine"): _begins,
    ("sqlalchemy", "async_sessionmaker"): _begins,
}
