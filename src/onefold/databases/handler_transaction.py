"""Transactions that are begun and committed for a handler: on our connections or its own.

Each is begun and ended by the methods of its library, so that the library knows its state. A
transaction that is open already is not joined: other code would commit it.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from onefold.databases import borrowed as refusals
from onefold.databases.borrowed import borrow, class_names
from onefold.errors import DatabaseBusy, UsageError, WrongConnection
from onefold.operations.statement import Statement, run, run_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from types import TracebackType
    from typing import Self

    from onefold.databases import Build, Database
    from onefold.databases.borrowed import Borrowed
    from onefold.operations.statement import Operation, Sql

T = TypeVar("T")

TRIES: Final = 100
"""How many dead connections of a pool are replaced, one after the other: more than most pools
have.
"""
UNUSED: Final = 60.0
"""Seconds until the first statement within which a lost connection uses no attempt."""
IDLE_CLASS: Final = "25P"
"""SQLSTATEs by which the server ends a session whose transaction took too long."""

Opening: TypeAlias = Generator[Any, Any, Any]
"""Yields the context managers to enter, plain or async; returns the connection of the handler."""


class Given(msgspec.Struct):
    """A connection or session of one request. If it has begun a transaction, we end it.

    Frameworks share it among several functions of one request: one that has read, such as an
    authentication, has begun a transaction.
    """

    lent: Any
    is_spent: bool = False
    """Whether such a transaction was joined: after its end, the rows of the others are gone."""

    def has_begun(self) -> bool:
        """Whether there is a transaction to join; it can be joined once."""
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
    """Rolls a transaction back."""


def _ended(*, commit: bool) -> tuple[Any, Any, None]:
    """The arguments of `__exit__` that commit or roll back."""
    return (None, None, None) if commit else (_RolledBack, _RolledBack(), None)


innermost: ContextVar[HandlerTransaction | None] = ContextVar("onefold_begun", default=None)
"""The transaction of the current block. Tasks and threads with a copy of the context inherit it,
so it knows itself whether it is over.
"""


def begun_here(database: Database | None = None) -> HandlerTransaction | None:
    """The innermost open transaction of ours in this context, on this database."""
    here = innermost.get()
    while here is not None and (here.is_over or not here.is_on(database)):
        here = here.outer
    return here


class HandlerTransaction:
    """An open transaction, and the operations of ours in it."""

    def __init__(
        self,
        connection: Any,
        borrowed: Borrowed,
        database: Database,
        ending: ExitStack | AsyncExitStack,
    ) -> None:
        """`connection` is for the handler; leaving `ending` commits, or rolls back."""
        self.connection = connection
        self.borrowed = borrowed
        self.blocking: bool = isinstance(ending, ExitStack)
        """True if the transaction is used and ended by calls that block."""
        self._ending: Any = ending
        self.outer: HandlerTransaction | None = None
        self.is_over: bool = False
        self._database = database
        self.runs_with_begin: bool = hasattr(connection, "answer")
        """True if the connection runs operations together with its begin and its commit."""
        self.answer: Any = getattr(connection, "answer", None)
        """The result of the first operation."""
        self._answers: int | None = getattr(connection, "answers", None)
        self._began = time.monotonic()

    def died_unused(self, error: BaseException) -> bool:
        """True if our connection was lost before the response to the handler's first statement.

        False if the server ended it because it was idle, or if the handler did not use it for
        long: that would happen again.
        """
        if self._answers is None or not self.connection.closed:
            return False
        idle = (getattr(error, "sqlstate", None) or "").startswith(IDLE_CLASS)
        late = time.monotonic() - self._began > UNUSED
        return self.connection.answers == self._answers and not idle and not late

    def entered(self, ending: ExitStack | AsyncExitStack) -> Self:
        """It has begun: leaving `ending` ends it."""
        self._ending = ending
        self.enter()
        return self

    def enter(self) -> None:
        """Make it the innermost transaction of this context, until it is over."""
        if (here := begun_here()) is not self:
            self.outer = here
        innermost.set(self)

    def leave(self) -> None:
        """Mark it as over, in each context that has entered it."""
        self.is_over = True
        if innermost.get() is self:
            innermost.set(self.outer)

    def end(self, *, commit: bool, last: Build[Any] | None = None) -> None:
        """Run the last operation and commit, or roll back.

        A transaction that has ended is not changed.
        """
        if last is not None:
            self.execute(last)
        self.__exit__(*_ended(commit=commit))

    async def aend(self, *, commit: bool, last: Build[Any] | None = None) -> None:
        """`end`, awaited."""
        if last is not None and self.runs_with_begin:
            self._refuse_ended()
            self.connection.last = last
        elif last is not None:
            await self.aexecute(last)
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
        self._ending.__exit__(kind, error, trace)

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
        await self._ending.__aexit__(kind, error, trace)

    def is_on(self, database: Database | None) -> bool:
        """Whether it is a transaction of this database, by label and schema; None is any."""
        own = self._database
        if database is None or own is database:
            return True
        return (own.label, own.sql.schema) == (database.label, database.sql.schema)

    def execute(self, build: Build[T]) -> T:
        """Run an operation of ours, after the handler's statements."""
        self._refuse_ended()
        if _is_session(self.connection):
            self.connection.flush()
        return self.borrowed.transact(build)

    async def aexecute(self, build: Build[T]) -> T:
        """`execute`, awaited."""
        self._refuse_ended()
        if _is_session(self.connection):
            await self.connection.flush()
        return await self.borrowed.atransact(build)

    def _refuse_ended(self) -> None:
        """Raise if the handler has committed: our rows would be in another transaction.

        Django raises by itself. SQLAlchemy begins with the first statement, but knows its state.
        """
        packages = _packages(self.connection)
        if "sqlalchemy" in packages:
            has_ended = not self.connection.in_transaction()
        else:
            has_ended = "django" not in packages and self.borrowed.failed()
        if has_ended:
            raise UsageError(
                "The transaction has ended inside its block: it was committed or rolled back there,"
                " or an error has ended it. Leave that to the block; where a session must send its"
                " rows before, call flush() instead of commit()."
            )


def begin(
    target: object, database: Database, first: Build[Any] | None = None
) -> HandlerTransaction:
    """Begin a transaction; use it in a `with`, or end it. `first` is run at once.

    Its connection has responded: dead connections of a pool are replaced.
    """
    for left in reversed(range(_tries(target))):
        try:
            with ExitStack() as opened:
                opening = _opening(target, database, blocking=True)
                connection = run(opening, opened.enter_context)
                borrowed = borrow(connection, database)
                if target is not None and first is None:
                    borrowed.transact(_first(connection), write=False)
                transaction = HandlerTransaction(connection, borrowed, database, opened)
                if first is not None:
                    transaction.answer = transaction.execute(first)
                return transaction.entered(opened.pop_all())
        except Exception as error:
            if not left or not _is_lost(error, database):
                raise
    raise AssertionError("the last try has raised")


async def abegin(
    target: object, database: Database, first: Build[Any] | None = None
) -> HandlerTransaction:
    """`begin`, awaited; for an `async with`."""
    for left in reversed(range(_tries(target))):
        try:
            async with AsyncExitStack() as opened:
                opening = _opening(target, database, first, blocking=False)
                connection = await run_async(opening, opened.enter_async_context)
                borrowed = borrow(connection, database)
                if target is not None and first is None:
                    await borrowed.atransact(_first(connection), write=False)
                transaction = HandlerTransaction(connection, borrowed, database, opened)
                if first is not None and not transaction.runs_with_begin:
                    transaction.answer = await transaction.aexecute(first)
                return transaction.entered(opened.pop_all())
        except Exception as error:
            if not left or not _is_lost(error, database):
                raise
    raise AssertionError("the last try has raised")


def _tries(target: object) -> int:
    """One for a session that has begun: its rows are lost with its connection."""
    has_begun = isinstance(target, Given) and _has_begun(target.lent)
    return 1 if has_begun or isinstance(target, OpenBlock) else TRIES


def _is_lost(error: Exception, database: Database) -> bool:
    if database.sql.dialect == "sqlite":
        return False
    from onefold.databases.postgres.errors import is_lost

    return is_lost(error)


def is_blocking(target: object) -> bool:
    """True for a target of `begin`, False for one of `abegin`; else raises `WrongConnection`."""
    target = target.lent if isinstance(target, Given) else target
    names = class_names(target)
    if not _BLOCKING.keys().isdisjoint(names):
        return True
    if not _AWAITED.keys().isdisjoint(names):
        return False
    raise WrongConnection(target, refusals.instead_of(names))


def is_target(value: object) -> bool:
    """Whether a transaction can be begun on it."""
    return not (_BLOCKING.keys() | _AWAITED.keys()).isdisjoint(class_names(value))


def current_target(target: object) -> object:
    """The target, or what it returns if it is a function that returns one."""
    if target is not None and callable(target) and not is_target(target):
        return target()
    return target


def refuse_thread_bound(target: object) -> None:
    """Reject a target that is bound to one thread: awaited code may change the thread."""
    if "django" in _packages(target):
        raise WrongConnection(
            target,
            "belongs to the thread that has opened it, and nothing that is awaited stays in one."
            " Make the handler a plain function, or give an async pool or engine.",
        )


def _first(connection: object) -> Build[None]:
    """The first operation, if the caller has none. It shows that the connection responds.

    The database is checked by the first operation on a connection. SQLAlchemy begins with the
    first statement; for the others, `begin` has shown that the server responds.
    """

    def build(sql: Sql) -> Operation[None]:
        if sql.dialect == "postgres" and "sqlalchemy" in _packages(connection):
            yield Statement("answer", "select 1", {})

    return build


def _opening(
    target: Any, database: Database, first: Build[Any] | None = None, *, blocking: bool
) -> Opening:
    if target is None and blocking:
        return (yield database.handler_transaction())
    if target is None:
        return (yield database.ahandler_transaction(first))
    if isinstance(target, Given):
        if target.has_begun():
            return (yield from _begun_session(target.lent, blocking=blocking))
        target = target.lent
    kinds = _BLOCKING if blocking else _AWAITED
    for name in class_names(target):
        if name in kinds:
            return (yield from kinds[name](target))
    if is_blocking(target):
        raise WrongConnection(
            target, "is sync. Use it with `with`, in a handler that is not a coroutine."
        )
    raise WrongConnection(target, "is async. Use it with `async with`, in an async handler.")


def _packages(target: object) -> set[str]:
    return {package for package, _ in class_names(target)}


def _is_session(lent: object) -> bool:
    return not _SESSIONS.isdisjoint(class_names(lent))


def _has_begun(lent: Any) -> bool:
    return _is_session(lent) and lent.in_transaction()


def _refuse_begun(target: object, *, begun: bool) -> None:
    if begun:
        raise refusals.has_begun(target)


# Each of these begins a transaction in the way of its library. The names of the methods are the
# same for plain and for async objects.


def _sqlite(connection: Any) -> Opening:
    from onefold.databases.sqlite.handler_transaction import lent

    return (yield lent(connection))


def _aiosqlite(connection: Any) -> Opening:
    from onefold.databases.sqlite.handler_transaction import alent

    return (yield alent(connection))


def _psycopg(connection: Any) -> Opening:
    _refuse_begun(connection, begun=bool(connection.info.transaction_status))
    yield connection.transaction()
    return connection


def _psycopg_pool(pool: Any) -> Opening:
    connection = yield pool.connection()
    yield connection.transaction()
    return connection


def _asyncpg(connection: Any) -> Opening:
    _refuse_begun(connection, begun=connection.is_in_transaction())
    yield connection.transaction()
    return connection


def _asyncpg_pool(pool: Any) -> Opening:
    connection = yield pool.acquire()
    yield connection.transaction()
    return connection


def _sqlalchemy(lent: Any) -> Opening:
    """A connection or a session."""
    _refuse_begun(lent, begun=lent.in_transaction())
    yield lent.begin()
    return lent


def _scoped(registry: Any) -> Opening:
    """The session of this thread or task."""
    return (yield from _sqlalchemy(registry()))


def _begins(maker: Any) -> Opening:
    """An engine or a maker of sessions: its `begin` opens a transaction."""
    return (yield maker.begin())


def _begun_session(session: Any, *, blocking: bool) -> Opening:
    yield session.get_transaction() if blocking else _async_block(session)
    return session


@asynccontextmanager
async def _async_block(session: Any) -> AsyncGenerator[None]:
    """The transaction of its sync session is the one to enter."""
    block = session.sync_session.get_transaction().__enter__()

    def end(_: Any, *how: Any) -> None:
        block.__exit__(*how)

    try:
        yield
    except BaseException as error:
        await session.run_sync(end, type(error), error, None)
        raise
    await session.run_sync(end, None, None, None)


def _django(connection: Any) -> Opening:
    from onefold.databases.borrowed.django import atomic

    _refuse_begun(connection, begun=connection.in_atomic_block)
    if connection.connection is not None and not connection.is_usable():
        connection.close()  # Django connects again by itself.
    yield atomic(connection)
    return connection


def _django_savepoint(target: OpenBlock) -> Opening:
    from onefold.databases.borrowed.django import atomic

    yield atomic(target.connection, durable=False)
    return target.connection


_BLOCKING: Final[dict[tuple[str, str], Callable[[Any], Opening]]] = {
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
"""By the package and the name of the target's class or of a base class."""

_AWAITED: Final[dict[tuple[str, str], Callable[[Any], Opening]]] = {
    ("aiosqlite", "Connection"): _aiosqlite,
    ("psycopg", "AsyncConnection"): _psycopg,
    ("psycopg_pool", "AsyncConnectionPool"): _psycopg_pool,
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
    ("asyncpg", "Pool"): _asyncpg_pool,
    ("sqlalchemy", "AsyncConnection"): _sqlalchemy,
    ("sqlalchemy", "AsyncSession"): _sqlalchemy,
    ("sqlalchemy", "async_scoped_session"): _scoped,
    ("sqlalchemy", "AsyncEngine"): _begins,
    ("sqlalchemy", "async_sessionmaker"): _begins,
}

_SESSIONS: Final = frozenset({("sqlalchemy", "Session"), ("sqlalchemy", "AsyncSession")})
