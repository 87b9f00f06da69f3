"""A transaction of our own on PostgreSQL: its statements, its retries, and one try of it.

`begin` is sent with the first statement, and so is the commit if the statement may be committed by
itself. Such a statement needs no transaction block if it cannot wait for a lock; neither does one
that only reads.
"""

from __future__ import annotations

import random
import time
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import msgspec
import psycopg
from psycopg.rows import TupleRow

from onefold.databases import raise_translated
from onefold.databases.batching import KeyHeld
from onefold.databases.postgres.errors import translated, verdict
from onefold.errors import DatabaseBusy, DatabaseUnavailable
from onefold.operations.statement import array_literal, compiled, run, run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGresult

    from onefold.databases import Build, Clock
    from onefold.operations.statement import Rows, Sql, Statement


def _may_have_rows(result: PGresult | None) -> bool:
    """In a pipeline, ours or the caller's, a result is unknown until it is fetched."""
    # Not by the cursor's description, which makes an object per column every time.
    return result is None or result.nfields > 0


@cache
def _encoded(text: str) -> bytes:
    return compiled(text, "pyformat")[0].encode()


def execute(
    cursor: psycopg.Cursor[TupleRow], statement: Statement, clock: Clock, *, fetch_rows: bool = True
) -> Rows:
    """Run one statement on a cursor that gives tuples; without `fetch_rows`, only send it."""
    parameters = statement.arrays(array_literal)
    parameters["now"] = None if clock is None else clock()
    cursor.execute(_encoded(statement.text), parameters)
    return fetch(cursor) if fetch_rows else ()


def fetch(cursor: psycopg.Cursor[TupleRow]) -> Rows:
    """The rows of a statement, if it returns any."""
    try:
        return cursor.fetchall() if _may_have_rows(cursor.pgresult) else ()
    except psycopg.ProgrammingError:
        if cursor.pgresult is None:
            raise
        return ()  # a result without rows, which is known only now


async def aexecute(
    cursor: psycopg.AsyncCursor[TupleRow],
    statement: Statement,
    clock: Clock,
    *,
    fetch_rows: bool = True,
) -> Rows:
    """`execute`, awaited."""
    parameters = statement.arrays(array_literal)
    parameters["now"] = None if clock is None else clock()
    await cursor.execute(_encoded(statement.text), parameters)
    return await afetch(cursor) if fetch_rows else ()


async def afetch(cursor: psycopg.AsyncCursor[TupleRow]) -> Rows:
    """`fetch`, awaited."""
    try:
        return await cursor.fetchall() if _may_have_rows(cursor.pgresult) else ()
    except psycopg.ProgrammingError:
        if cursor.pgresult is None:
            raise
        return ()


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


class Effort:
    """How long one call has been retried, and whether to continue."""

    def __init__(
        self,
        label: str,
        patience: timedelta,
        busy: Callable[[timedelta], DatabaseBusy],
        *,
        patient: bool,
        started: float | None = None,
    ) -> None:
        """`busy` makes the error for a lock that was not released in time.

        One that is not `patient` raises `KeyHeld` at the first lock, and soon if keys keep
        changing hands.
        """
        self._label = label
        self._patience = patience
        self.patient = patient
        self._busy = busy
        self._started = time.monotonic() if started is None else started
        self._tries = 0
        self.resends: bool = False
        """True if an earlier try may have been stored, and its response was lost."""
        self.unconfirmed: Unconfirmed | None = None
        """The commit of an earlier try whose response was lost."""

    def restart(self) -> float:
        """Seconds to wait before an operation begins anew; raises after too long."""
        waited = timedelta(seconds=time.monotonic() - self._started)
        if waited >= IMPATIENCE and not self.patient:
            # Alone, each caller has to retry only for its own key.
            raise KeyHeld
        if waited >= self._patience:
            raise DatabaseBusy("the keys of this call kept changing hands.", waited=waited)
        # A row that was neither stored nor found by its key may be our own, from a call that
        # was interrupted: look for it by its id.
        self.resends = True
        return random.random() * PAUSE

    def wait(self) -> float:
        """Seconds to wait for a transaction that is still open; raises after too long."""
        waited = timedelta(seconds=time.monotonic() - self._started)
        if waited >= self._patience:
            raise DatabaseUnavailable(
                self._label,
                "the answer to a commit was lost, and the server has not ended that transaction"
                " yet. Whether it was stored is not known.",
            )
        return self._next_pause()

    def _next_pause(self) -> float:
        self._tries += 1
        return random.random() * min(PAUSE * 2.0**self._tries, LONGEST_PAUSE)

    def pause(self, error: psycopg.Error, *, connection_lost: bool) -> float:
        """Seconds to wait before the next try; raises our error if there is none."""
        waited = timedelta(seconds=time.monotonic() - self._started)
        meaning = verdict(error, connection_lost=connection_lost)
        if meaning == "waited" and not self.patient:
            raise KeyHeld from error
        final = meaning == "final" or (meaning == "stored" and self.resends)
        if final or waited >= self._patience:
            raise_translated(translated(error, self._label, self._busy(waited)), error)
        self.resends = self.resends or meaning in {"stored", "lost"}
        return 0.0 if meaning in {"waited", "stored"} else self._next_pause()


T = TypeVar("T")
CursorT = TypeVar("CursorT", bound="psycopg.Cursor[TupleRow] | psycopg.AsyncCursor[TupleRow]")

PIPELINES: Final = psycopg.Pipeline.is_supported()
"""libpq has them since version 14; without them, the statements are sent one by one."""

BEGIN: Final = b"begin isolation level read committed"
COMMIT: Final = b"commit"

# Below the server's deadlock_timeout, a second by default: our transaction fails, not another.
PATIENT: Final = b"set local lock_timeout = 800"
IMPATIENT: Final = b"set local lock_timeout = 50"

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


def _can_go_together(statement: Statement) -> bool:
    return (
        PIPELINES
        and bool(statement.ahead)
        and all(each.is_autocommit for each in (statement, *statement.ahead))
    )


class OurCursor(Generic[CursorT]):
    """A cursor of a connection that is used again.

    A new cursor has to prepare the adaptation of each parameter type: a tenth of an enqueue. A
    cursor with a long result is dropped, since it would keep the result in memory.
    """

    def __init__(self, make: Callable[[], CursorT]) -> None:
        """`make` creates a cursor of the connection."""
        self._make = make
        self._cursor: CursorT | None = None

    def get(self) -> CursorT:
        """The cursor."""
        if self._cursor is None:
            self._cursor = self._make()
        return self._cursor

    def let_go(self) -> None:
        """Drop a long result while the connection is idle."""
        answer = None if self._cursor is None else self._cursor.pgresult
        if answer is not None and answer.ntuples > FEW_ROWS:
            self._cursor = None


class Session(psycopg.Connection[TupleRow]):
    """A connection with a cursor of ours, and a count of the server's responses."""

    answers: int = 0
    server: str | None = None
    """The result of `SERVER`: known once a transaction of several statements has begun."""

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Every exchange with the server goes through here."""
        answer = super().wait(gen, *args, **options)
        self.answers += 1
        return answer

    @cached_property
    def ours(self) -> OurCursor[psycopg.Cursor[TupleRow]]:
        """The cursor, kept."""
        return OurCursor(self.cursor)


class AsyncSession(psycopg.AsyncConnection[TupleRow]):
    """`Session`, awaited."""

    answers: int = 0
    server: str | None = None
    """The result of `SERVER`: known once a transaction of several statements has begun."""

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Every exchange with the server goes through here."""
        answer = await super().wait(gen, *args, **options)
        self.answers += 1
        return answer

    @cached_property
    def ours(self) -> OurCursor[psycopg.AsyncCursor[TupleRow]]:
        """The cursor, kept."""
        return OurCursor(self.cursor)


class PostgresTransaction:
    """One try, on a connection in autocommit mode."""

    def __init__(
        self,
        connection: Session,
        clock: Clock,
        effort: Effort,
        *,
        write: bool,
    ) -> None:
        """`effort` decides how long to wait for a lock at a time, and knows earlier tries."""
        self._connection = connection
        self._cursor = connection.ours.get()
        self._clock = clock
        self._effort = effort
        self._write = write
        self._patience = PATIENT if effort.patient else IMPATIENT
        self._begun = False
        self._number = ""
        self._answers: dict[int, Rows] = {}
        """Results of statements that were sent ahead, by statement."""

    def run(self, build: Build[T], sql: Sql) -> T:
        """Run the operation and commit, or roll back.

        If an earlier try was committed, and only its response was lost, return the result of that
        try.
        """
        effort = self._effort
        if earlier := effort.unconfirmed:
            if self._is_committed(earlier):
                return cast("T", earlier.result)
            effort.unconfirmed = None
        try:
            result = run(build(sql), self._execute)
            if self._begun:
                effort.unconfirmed = Unconfirmed(
                    self._number, self._connection.server or "", result
                )
                self._cursor.execute(COMMIT, prepare=False)
        except BaseException:
            with suppress(psycopg.Error):
                self._connection.rollback()
            raise
        self._connection.ours.let_go()
        return result

    def _is_committed(self, earlier: Unconfirmed) -> bool:
        """Whether a commit without a response succeeded; raises `StillOpen` while it is open."""
        if not earlier.server:
            return False
        asked = [earlier.server, earlier.number]
        try:
            ((status,),) = self._connection.execute(STATUS, asked).fetchall()
        except psycopg.errors.InvalidParameterValue:
            return False  # a number that this server has not reached
        if status == "in progress":
            raise StillOpen
        return bool(status == "committed")

    def _server(self) -> str:
        """The identity of the server; empty if it is not available."""
        try:
            ((server,),) = self._connection.execute(SERVER).fetchall()
        except psycopg.Error:
            if self._connection.closed:
                raise
            return ""
        return str(server)

    def _execute(self, statement: Statement) -> Rows:
        if (answer := self._answers.pop(id(statement), None)) is not None:
            return answer
        if _can_go_together(statement) and self._write and not self._begun:
            return self._send_together([statement, *statement.ahead])
        if self._begun or not self._write or statement.is_autocommit:
            return execute(self._cursor, statement, self._clock)
        if not statement.alone and self._connection.server is None:
            self._connection.server = self._server()
        with self._pipelined():
            self._connection.execute(BEGIN, prepare=False)
            self._connection.execute(self._patience, prepare=False)
            self._connection.execute(AWAKE, prepare=False)
            number = None if statement.alone else self._connection.execute(NUMBER)
            self._begun = True
            rows = execute(self._cursor, statement, self._clock, fetch_rows=not statement.alone)
            if statement.alone:
                self._connection.execute(COMMIT, prepare=False)
        if number is None:
            self._begun = False
            rows = self._cursor.fetchall()
        else:
            ((self._number,),) = number.fetchall()
        return rows

    def _send_together(self, statements: list[Statement]) -> Rows:
        """Without a block, the statements of one pipeline are one transaction of the server."""
        cursors = [self._cursor, *(self._connection.cursor() for _ in statements[1:])]
        with self._pipelined():
            for cursor, statement in zip(cursors, statements, strict=True):
                execute(cursor, statement, self._clock, fetch_rows=False)
        rows = [fetch(cursor) for cursor in cursors]
        self._answers = dict(zip(map(id, statements), rows, strict=True))
        return self._answers.pop(id(statements[0]))

    def _pipelined(self) -> AbstractContextManager[Any]:
        return self._connection.pipeline() if PIPELINES else nullcontext()


class AsyncPostgresTransaction:
    """`PostgresTransaction`, awaited."""

    def __init__(
        self,
        connection: AsyncSession,
        clock: Clock,
        effort: Effort,
        *,
        write: bool,
    ) -> None:
        """`effort` decides how long to wait for a lock at a time, and knows earlier tries."""
        self._connection = connection
        self._cursor = connection.ours.get()
        self._clock = clock
        self._effort = effort
        self._write = write
        self._patience = PATIENT if effort.patient else IMPATIENT
        self._begun = False
        self._number = ""
        self._answers: dict[int, Rows] = {}
        self._pipeline: psycopg.AsyncPipeline | None = None

    async def run(self, build: Build[T], sql: Sql) -> T:
        """`PostgresTransaction.run`, awaited."""
        effort = self._effort
        if earlier := effort.unconfirmed:
            if await self._is_committed(earlier):
                return cast("T", earlier.result)
            effort.unconfirmed = None
        try:
            result = await run_async(build(sql), self._execute)
            if self._begun:
                effort.unconfirmed = Unconfirmed(
                    self._number, self._connection.server or "", result
                )
                await self._cursor.execute(COMMIT, prepare=False)
        except Exception:
            with suppress(psycopg.Error):
                await self._connection.rollback()
            raise
        except BaseException:
            # Cancelled: the result of the server is not needed any more.
            if self._pipeline is not None:
                # Psycopg would fetch these when it is collected, without a connection.
                self._pipeline.result_queue.clear()
            await self._connection.close()
            raise
        self._connection.ours.let_go()
        return result

    async def _is_committed(self, earlier: Unconfirmed) -> bool:
        if not earlier.server:
            return False
        asked = [earlier.server, earlier.number]
        try:
            answer = await self._connection.execute(STATUS, asked)
        except psycopg.errors.InvalidParameterValue:
            return False
        ((status,),) = await answer.fetchall()
        if status == "in progress":
            raise StillOpen
        return bool(status == "committed")

    async def _server(self) -> str:
        try:
            ((server,),) = await (await self._connection.execute(SERVER)).fetchall()
        except psycopg.Error:
            if self._connection.closed:
                raise
            return ""
        return str(server)

    async def _execute(self, statement: Statement) -> Rows:
        if (answer := self._answers.pop(id(statement), None)) is not None:
            return answer
        if _can_go_together(statement) and self._write and not self._begun:
            return await self._send_together([statement, *statement.ahead])
        if self._begun or not self._write or statement.is_autocommit:
            return await aexecute(self._cursor, statement, self._clock)
        if not statement.alone and self._connection.server is None:
            self._connection.server = await self._server()
        async with self._pipelined() as self._pipeline:
            await self._connection.execute(BEGIN, prepare=False)
            await self._connection.execute(self._patience, prepare=False)
            await self._connection.execute(AWAKE, prepare=False)
            number = None if statement.alone else await self._connection.execute(NUMBER)
            self._begun = True
            rows = await aexecute(
                self._cursor, statement, self._clock, fetch_rows=not statement.alone
            )
            if statement.alone:
                await self._connection.execute(COMMIT, prepare=False)
        if number is None:
            self._begun = False
            rows = await self._cursor.fetchall()
        else:
            ((self._number,),) = await number.fetchall()
        return rows

    async def _send_together(self, statements: list[Statement]) -> Rows:
        """Without a block, the statements of one pipeline are one transaction of the server."""
        cursors = [self._cursor, *(self._connection.cursor() for _ in statements[1:])]
        async with self._pipelined() as self._pipeline:
            for cursor, statement in zip(cursors, statements, strict=True):
                await aexecute(cursor, statement, self._clock, fetch_rows=False)
        rows = [await afetch(cursor) for cursor in cursors]
        self._answers = dict(zip(map(id, statements), rows, strict=True))
        return self._answers.pop(id(statements[0]))

    def _pipelined(self) -> AbstractAsyncContextManager[Any]:
        return self._connection.pipeline() if PIPELINES else nullcontext()
