"""A transaction of our own on PostgreSQL: its statements, its retries, and one try of it.

`begin` is sent with the first statement, and so is the commit if the statement may be committed by
itself. Such a statement needs no transaction block if it cannot wait for a lock; neither does one
that only reads.

A try is a generator that yields calls of psycopg, whose methods have the same names on blocking and
on async connections: `run(tries, called)` or `await run_async(tries, awaited)`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
import psycopg
from psycopg.rows import TupleRow

from onefold.databases import raise_translated
from onefold.databases.batching import KeyHeld
from onefold.databases.postgres.errors import classify, translated
from onefold.errors import DatabaseBusy, DatabaseUnavailable
from onefold.operations.statement import Rows, array_literal, compiled
from onefold.operations.unique_keys import Restart

if TYPE_CHECKING:
    from psycopg.abc import PQGen

    from onefold.databases import Build, Clock
    from onefold.operations.statement import Sql, Statement

T = TypeVar("T")

Cursor: TypeAlias = psycopg.Cursor[TupleRow] | psycopg.AsyncCursor[TupleRow]
Calls: TypeAlias = Generator[tuple[Any, ...], Any, T]
"""Yields functions of psycopg with their arguments; receives what they return."""


def called(call: tuple[Any, ...]) -> Any:
    """Make a call on a blocking connection."""
    function, *arguments = call
    return function(*arguments)


async def awaited(call: tuple[Any, ...]) -> Any:
    """Make a call on an async connection."""
    function, *arguments = call
    return await function(*arguments)


class Query(NamedTuple):
    """A statement as psycopg takes it."""

    text: bytes
    parameters: Mapping[str, Any] | None = None
    cursor: Any = None
    """Receives the result. None: it is not needed, and the statement is not prepared."""


@cache
def _encoded(text: str) -> bytes:
    return compiled(text, "pyformat")[0].encode()


def _query(
    cursor: Cursor, statement: Statement, clock: Clock, patience: str | None = None
) -> Query:
    parameters = statement.arrays(array_literal)
    parameters["now"] = None if clock is None else clock()
    parameters["patience"] = patience
    return Query(_encoded(statement.text), parameters, cursor)


def execute(
    cursor: Cursor, statement: Statement, clock: Clock, patience: str | None = None
) -> Calls[Rows]:
    """Run one statement on a cursor that gives tuples.

    `patience`: the lock timeout that a statement sets which is committed by itself.
    """
    text, parameters, _ = _query(cursor, statement, clock, patience)
    yield cursor.execute, text, parameters
    return (yield from fetch(cursor))


def fetch(cursor: Cursor) -> Calls[Rows]:
    """The rows of a statement, if it returns any."""
    # Not by the cursor's description, which makes an object per column every time. In a pipeline,
    # as the caller may have begun, a result is unknown until it is fetched.
    result = cursor.pgresult
    if result is not None and not result.nfields:
        return ()
    try:
        rows: Rows = yield (cursor.fetchall,)
    except psycopg.ProgrammingError:
        if cursor.pgresult is None:
            raise
        return ()  # a result without rows, which is known only now
    return rows


# Spread retries, so that two calls that collided do not collide again.
PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5

IMPATIENCE: Final = timedelta(milliseconds=100)
"""How long a batch of callers is retried while its keys keep changing hands."""


class Unconfirmed(msgspec.Struct, frozen=True):
    """A transaction whose commit was sent, and the result of its operation if it was committed."""

    number: str
    server: str
    result: Any


class StillOpen(Exception):
    """The server has not ended a transaction whose commit was sent on a connection that is lost."""


RETRIED: Final = (Restart, StillOpen, psycopg.Error)
"""The errors after which a transaction may be tried again."""


class Effort:
    """How long one call has been retried, and whether to continue."""

    def __init__(
        self,
        label: str,
        patience: timedelta,
        busy: Callable[[timedelta], DatabaseBusy],
        *,
        patient: bool = True,
        deadline: float | None = None,
    ) -> None:
        """`busy` makes the error for a lock that was not released in time.

        One that is not `patient` raises `KeyHeld` at the first lock, and soon if keys keep
        changing hands.
        """
        self._label = label
        self._patience = patience
        self.patient = patient
        self._busy = busy
        now = time.monotonic()
        self._started = now if deadline is None else deadline - patience.total_seconds()
        self._tries = 0
        self.resends: bool = False
        """True if an earlier try may have been stored, and its response was lost."""
        self.unconfirmed: Unconfirmed | None = None
        """The commit of an earlier try whose response was lost."""

    def pause(self, error: BaseException, *, connection_lost: bool = False) -> float:
        """Seconds to wait before the next try; raises the caller's error if there is none."""
        waited = timedelta(seconds=time.monotonic() - self._started)
        is_over = waited >= self._patience
        if isinstance(error, Restart):
            if waited >= IMPATIENCE and not self.patient:
                # Alone, each caller has to retry only for its own key.
                raise KeyHeld
            if is_over:
                raise DatabaseBusy("the keys of this call kept changing hands.", waited=waited)
            # A row that was neither stored nor found by its key may be our own, from a call that
            # was interrupted: look for it by its id.
            self.resends = True
            return random.random() * PAUSE
        if isinstance(error, StillOpen):
            if is_over:
                raise DatabaseUnavailable(
                    self._label,
                    "the answer to a commit was lost, and the server has not ended that transaction"
                    " yet. Whether it was stored is not known.",
                )
            return self._next_pause()
        error_class = classify(error, connection_lost=connection_lost)
        if error_class == "lock_timeout" and not self.patient:
            raise KeyHeld from error
        if is_over or error_class == "other" or (error_class == "duplicate_id" and self.resends):
            raise_translated(translated(error, self._label, self._busy(waited)), error)
        self.resends = self.resends or error_class in {"duplicate_id", "connection_lost"}
        return 0.0 if error_class in {"lock_timeout", "duplicate_id"} else self._next_pause()

    def _next_pause(self) -> float:
        self._tries += 1
        return random.random() * min(PAUSE * 2.0**self._tries, LONGEST_PAUSE)


PIPELINES: Final = psycopg.Pipeline.is_supported()
"""libpq has them since version 14; without them, the statements are sent one by one."""

BEGIN: Final = b"begin isolation level read committed"
COMMIT: Final = b"commit"

# Below the server's deadlock_timeout, a second by default: our transaction fails, not another.
PATIENT: Final = "800"
IMPATIENT: Final = "50"

# A process that is frozen between two statements must not keep its rows locked for long.
AWAKE: Final = b"set local idle_in_transaction_session_timeout = 15000"

# The number of the transaction, by which the server knows its status. Another server has
# other transactions with the same numbers, and so has a server that was promoted meanwhile.
NUMBER: Final = b"select pg_current_xact_id()::text"
_SERVER: Final = b"system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)"
SERVER: Final = b"select " + _SERVER + b" from pg_control_system()"
STATUS: Final = (
    b"select case when " + _SERVER + b" = %s::text then pg_xact_status(%s::text::xid8) end"
    b" from pg_control_system()"
)

FEW_ROWS: Final = 10


class Session(psycopg.Connection[TupleRow]):
    """A connection with a cursor of ours, and a count of the server's responses."""

    answers: int = 0
    server: str | None = None
    """The result of `SERVER`: known once a transaction of several statements has begun."""

    @cached_property
    def ours(self) -> psycopg.Cursor[TupleRow]:
        """A cursor that is used again.

        A new cursor has to prepare the adaptation of each parameter type: a tenth of an enqueue.
        """
        return self.cursor()

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Every exchange with the server goes through here."""
        answer = super().wait(gen, *args, **options)
        self.answers += 1
        return answer

    def send(self, queries: Sequence[Query]) -> None:
        """Run statements in one round trip."""
        try:
            with self.pipeline() if PIPELINES else nullcontext():
                for text, parameters, cursor in queries:
                    if cursor is None:
                        self.execute(text, prepare=False)
                    else:
                        cursor.execute(text, parameters)
        except psycopg.Error as error:
            # An interrupted pipeline cannot be left, and psycopg raises that error instead.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise


class AsyncSession(psycopg.AsyncConnection[TupleRow]):
    """`Session`, awaited."""

    answers: int = 0
    server: str | None = None

    @cached_property
    def ours(self) -> psycopg.AsyncCursor[TupleRow]:
        """A cursor that is used again."""
        return self.cursor()

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Every exchange with the server goes through here."""
        answer = await super().wait(gen, *args, **options)
        self.answers += 1
        return answer

    async def send(self, queries: Sequence[Query]) -> None:
        """Run statements in one round trip."""
        pipeline: psycopg.AsyncPipeline | None = None
        try:
            async with self.pipeline() if PIPELINES else nullcontext() as pipeline:
                for text, parameters, cursor in queries:
                    if cursor is None:
                        await self.execute(text, prepare=False)
                    else:
                        await cursor.execute(text, parameters)
        except asyncio.CancelledError:
            if pipeline is not None:
                # Psycopg would fetch these when it is collected, without a connection.
                pipeline.result_queue.clear()
            raise


class PostgresTransaction:
    """One try, on a connection in autocommit mode."""

    def __init__(
        self, connection: Session | AsyncSession, clock: Clock, effort: Effort, *, write: bool
    ) -> None:
        """`effort` decides how long to wait for a lock at a time, and knows earlier tries."""
        self._connection = connection
        self._cursor: Cursor = connection.ours
        self._clock = clock
        self._effort = effort
        self._patience = PATIENT if effort.patient else IMPATIENT
        self._write = write
        self._number = ""
        """The number of the transaction block, if one has begun."""

    def run(self, build: Build[T], sql: Sql) -> Calls[T]:
        """Run the operation and commit. The caller rolls back after an error.

        If an earlier try was committed, and only its response was lost, return the result of that
        try.
        """
        effort, connection = self._effort, self._connection
        if earlier := effort.unconfirmed:
            if (yield from self._is_committed(earlier)):
                return cast("T", earlier.result)
            effort.unconfirmed = None
        operation, result = build(sql), cast("T", None)
        try:
            statement = next(operation)
            while True:
                rows = yield from self._execute(statement)
                statement = operation.send(rows)
        except StopIteration as finished:
            result = finished.value
        if self._number:
            effort.unconfirmed = Unconfirmed(self._number, connection.server or "", result)
            yield (connection.commit,)
        last = self._cursor.pgresult
        if last is not None and last.ntuples > FEW_ROWS:
            del connection.ours  # it would keep a long result in memory
        return result

    def _is_committed(self, earlier: Unconfirmed) -> Calls[bool]:
        """Whether a commit without a response succeeded; raises `StillOpen` while it is open."""
        if not earlier.server:
            return False
        cursor = self._cursor
        try:
            yield cursor.execute, STATUS, [earlier.server, earlier.number]
        except psycopg.errors.InvalidParameterValue:
            return False  # a number that this server has not reached
        ((status,),) = yield (cursor.fetchall,)
        if status == "in progress":
            raise StillOpen
        return bool(status == "committed")

    def _server(self) -> Calls[str]:
        """The identity of the server; empty if it is not available."""
        cursor = self._cursor
        try:
            yield cursor.execute, SERVER
        except psycopg.Error:
            if self._connection.closed:
                raise
            return ""
        ((server,),) = yield (cursor.fetchall,)
        return str(server)

    def _execute(self, statement: Statement) -> Calls[Rows]:
        is_autocommit = statement.alone and not statement.waits
        if self._number or not self._write or is_autocommit:
            return (yield from execute(self._cursor, statement, self._clock, self._patience))
        return (yield from self._begin(statement))

    def _begin(self, statement: Statement) -> Calls[Rows]:
        """Begin with the first statement, and commit if it may be committed by itself."""
        connection = self._connection
        patience = f"set local lock_timeout = {self._patience}".encode()
        begin = [Query(BEGIN), Query(patience), Query(AWAKE)]
        if statement.alone:
            query = _query(self._cursor, statement, self._clock)
            yield connection.send, [*begin, query, Query(COMMIT)]
            return (yield from fetch(self._cursor))
        if connection.server is None:
            connection.server = yield from self._server()
        # In one message, without a pipeline. After a pipeline psycopg sends a Flush, at which the
        # server stops the clock of its idle timeout.
        block = b"; ".join([*(query.text for query in begin), NUMBER])
        yield (partial(self._cursor.execute, block, prepare=False),)
        while self._cursor.nextset():
            pass
        ((self._number,),) = yield (self._cursor.fetchall,)
        return (yield from execute(self._cursor, statement, self._clock, self._patience))
