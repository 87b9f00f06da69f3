"""A transaction of our own on PostgreSQL: its statements, its retries, and one try of it.

`begin` is sent with the first statement, and so is the commit if the statement may be committed by
itself. Such a statement needs no transaction block if it cannot wait for a lock; neither does one
that only reads.

A try is a generator of trips to the server, which the connection drives.

On connections of the caller, a statement is run by a cursor: by a generator that yields calls of
psycopg, whose methods have the same names on blocking and on async connections:
`run(calls, called)` or `await run_async(calls, awaited)`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import msgspec
import psycopg
from psycopg.rows import TupleRow

from onefold.databases import raise_translated
from onefold.databases.batching import KeyHeld
from onefold.databases.deadline import seconds_until
from onefold.databases.postgres.errors import classify, translated
from onefold.databases.postgres.libpq import PIPELINES, Silent, values_of
from onefold.databases.reach import database_wait
from onefold.errors import DatabaseBusy, DatabaseUnavailable
from onefold.operations.statement import Rows, compiled
from onefold.operations.unique_keys import Restart

if TYPE_CHECKING:
    from onefold.databases import Build, Clock
    from onefold.databases.postgres.errors import ErrorClass
    from onefold.databases.postgres.libpq import AsyncSession, Request, Session, Waits
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


@cache
def _encoded(text: str) -> bytes:
    return compiled(text, "pyformat")[0].encode()


def execute(cursor: Cursor, statement: Statement, clock: Clock) -> Calls[Rows]:
    """Run one statement on a cursor that gives tuples."""
    yield cursor.execute, _encoded(statement.text), values_of(statement, clock)
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


MAYBE_STORED: Final = {"duplicate_id", "connection_lost", "node_lost"}
"""The classes of errors after which an earlier try may have been stored."""

NODE_PATIENCE: Final = 0.25
"""Seconds for which a call is retried if a node of Citus is away; other shards wait meanwhile.

Citus may still have connections from before a restart of the node, which fail once.
"""


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
        until: float | None = None,
    ) -> None:
        """`busy` makes the error for a lock that was not released in time.

        One that is not `patient` raises `KeyHeld` at the first lock, and soon if keys keep
        changing hands. `until` is when a call that only reads has to end, by the deadline of its
        caller.
        """
        self._label = label
        self._patience = patience
        self.patient = patient
        self.until = until
        self._busy = busy
        now = time.monotonic()
        self._started = now if deadline is None else deadline - patience.total_seconds()
        self._tries = 0
        self._wait = database_wait.get()
        self._lost_at = 0.0
        """When the server, or a node of Citus, was first away."""
        self.resends: bool = False
        """True if an earlier try may have been stored, and its response was lost."""
        self.unconfirmed: Unconfirmed | None = None
        """The commit of an earlier try whose response was lost."""

    @property
    def wait(self) -> float | None:
        """Seconds for which a request still waits for the server; None in other calls."""
        if self._wait is None or not self._lost_at:
            return self._wait
        return max(self._wait - (time.monotonic() - self._lost_at), PAUSE)

    def check_deadline(self) -> None:
        """Raise `TimeoutError` if the time of a call that only reads is over."""
        if self.until is not None:
            seconds_until(self.until)

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
        is_over = is_over or isinstance(error, Silent) or self._is_away_for_long(error_class)
        if is_over or error_class == "other" or (error_class == "duplicate_id" and self.resends):
            raise_translated(translated(error, self._label, self._busy(waited)), error)
        self.resends = self.resends or error_class in MAYBE_STORED
        return 0.0 if error_class in {"lock_timeout", "duplicate_id"} else self._next_pause()

    def _is_away_for_long(self, error_class: ErrorClass) -> bool:
        patience = {"node_lost": NODE_PATIENCE, "connection_lost": self._wait}.get(error_class)
        if patience is None:
            return False
        self._lost_at = self._lost_at or time.monotonic()
        return time.monotonic() - self._lost_at >= patience

    def _next_pause(self) -> float:
        self._tries += 1
        return random.random() * min(PAUSE * 2.0**self._tries, LONGEST_PAUSE)


BEGIN: Final = "begin isolation level read committed"
COMMIT: Final = "commit"

# Below the server's deadlock_timeout, a second by default: our transaction fails, not another.
PATIENT: Final = "800"
IMPATIENT: Final = "50"

# A process that is frozen between two statements must not keep its rows locked for long.
AWAKE: Final = "15000"

LIMITS: Final = (
    "select set_config('lock_timeout', :patience::text, true),"
    " set_config('idle_in_transaction_session_timeout', :awake::text, true)"
)
# The number of the transaction, by which the server knows its status. Another server has
# other transactions with the same numbers, and so has a server that was promoted or has crashed
# meanwhile: a crash sets its statistics back, and numbers that were not yet on disk are used again.
NUMBERED: Final = LIMITS + ", pg_current_xact_id()::text"
CLOCK: Final = "select (extract(epoch from statement_timestamp()) * 1000000)::bigint"
_SERVER: Final = (
    "system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)"
    " || '/' || extract(epoch from pg_stat_get_bgwriter_stat_reset_time())"
)
UNTIL: Final = "select set_config('statement_timeout', :milliseconds::text, true)"
IN_ORDER: Final = (
    "select set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)"
)
SERVER: Final = f"select {_SERVER} from pg_control_system()"  # noqa: S608 - ours
STATUS: Final = (
    f"select case when {_SERVER} = :server::text"  # noqa: S608 - ours
    " then pg_xact_status(:number::text::xid8) end from pg_control_system()"
)


class PostgresTransaction:
    """One try, on a connection in autocommit mode."""

    def __init__(
        self,
        connection: Session | AsyncSession,
        clock: Clock,
        effort: Effort,
        *,
        write: bool,
    ) -> None:
        """`effort` decides how long to wait for a lock at a time, and knows earlier tries."""
        self._connection = connection
        self._clock = clock
        self._effort = effort
        self._patience = PATIENT if effort.patient else IMPATIENT
        self._write = write
        self._number = ""
        """The number of the transaction block, if one has begun."""
        self._distributed = False
        """True on Citus."""

    def run(self, build: Build[T], sql: Sql) -> Waits[T]:
        """Run the operation and commit. The caller rolls back after an error.

        If an earlier try was committed, and only its response was lost, return the result of that
        try.
        """
        effort, connection = self._effort, self._connection
        if earlier := effort.unconfirmed:
            if (yield from self._is_committed(earlier)):
                return cast("T", earlier.result)
            effort.unconfirmed = None
        self._distributed = sql.distributed
        operation, result = build(sql), cast("T", None)
        try:
            statement = next(operation)
            while True:
                rows = yield from self._execute(statement)
                statement = operation.send(rows)
        except StopIteration as finished:
            result = finished.value
        except Exception:
            yield from connection.discard_trips()
            raise
        if self._number:
            effort.unconfirmed = Unconfirmed(self._number, connection.server or "", result)
            yield from self._run_text(COMMIT)
        return result

    def _run_text(self, text: str, **given: str) -> Waits[Rows]:
        return self._connection.execute_request(self._connection.request(text, given))

    def _is_committed(self, earlier: Unconfirmed) -> Waits[bool]:
        """Whether a commit without a response succeeded; raises `StillOpen` while it is open."""
        if not earlier.server:
            return False
        try:
            rows = yield from self._run_text(STATUS, server=earlier.server, number=earlier.number)
        except psycopg.errors.InvalidParameterValue:
            return False  # a number that this server has not reached
        ((status,),) = rows
        if status == "in progress":
            raise StillOpen
        return bool(status == "committed")

    def _server(self) -> Waits[str]:
        """The identity of the server; empty if it is not available."""
        try:
            ((server,),) = yield from self._run_text(SERVER)
        except psycopg.Error:
            if self._connection.closed:
                raise
            return ""
        return str(server)

    def _execute(self, statement: Statement) -> Waits[Rows]:
        connection = self._connection
        if statement.ahead is not None:
            return self._send_ahead(statement, statement.ahead)
        request = self._request(statement)
        if not self._write and (statement.in_order or self._effort.until is not None):
            return self._read(request, in_order=statement.in_order)
        if statement.in_order:
            return self._write_in_order(request)
        if self._number or not self._write or (statement.alone and not statement.waits):
            return connection.execute_request(request)
        return self._begin(request, alone=statement.alone)

    def _read(self, request: Request, *, in_order: bool) -> Waits[Rows]:
        """Read with settings. The server itself ends the statement at the caller's deadline."""
        connection, until = self._connection, self._effort.until
        settings: list[Request] = []
        if in_order:
            settings.append(connection.request(IN_ORDER, {}))
        if until is not None:
            milliseconds = str(int(seconds_until(until) * 1000) + 1)
            settings.append(connection.request(UNTIL, {"milliseconds": milliseconds}))
        if PIPELINES:  # what is sent together is one transaction
            *_, rows = yield from connection.exchange((*settings, request))
            return rows
        begin, commit = connection.request(BEGIN, {}), connection.request(COMMIT, {})
        *_, rows, _ = yield from connection.exchange((begin, *settings, request, commit))
        return rows

    def _write_in_order(self, request: Request) -> Waits[Rows]:
        """Read along an index in a transaction that writes; the setting ends with it."""
        setting = self._connection.request(IN_ORDER, {})
        if self._number:
            yield from self._connection.execute_request(setting)
        else:
            yield from self._begin(setting, alone=False)
        return (yield from self._connection.execute_request(request))

    def _send_ahead(self, statement: Statement, receive: Callable[[Rows], None]) -> Waits[Rows]:
        """Send a statement; `receive` gets its rows when they are read, with those of the next one.

        The transaction block has begun before: if that failed after a part was sent, the part would
        be committed by itself. The statements do the work of one, so they get the same time.
        """
        if not self._number:
            ((now,),) = yield from self._begin(self._connection.request(CLOCK, {}), alone=False)
            fixed: int = now if self._clock is None else self._clock()
            self._clock = lambda: fixed
        request = self._request(statement)
        if PIPELINES:
            yield from self._connection.send_ahead(request, receive)
        else:
            receive((yield from self._connection.execute_request(request)))
        return ()

    def _request(self, statement: Statement) -> Request:
        values = values_of(statement, self._clock, self._patience)
        return self._connection.request(statement.text, values)

    def _begin(self, first: Request, *, alone: bool) -> Waits[Rows]:
        """Begin with the first statement, and commit if it may be committed by itself."""
        connection = self._connection
        begin = [connection.request(BEGIN, {})]
        if self._distributed:
            # Citus sends a SET LOCAL to the nodes, and not a set_config.
            begin.append(connection.request(f"set local lock_timeout = {self._patience}", {}))
        limits = {"patience": self._patience, "awake": AWAKE}
        if alone:
            limited, commit = connection.request(LIMITS, limits), connection.request(COMMIT, {})
            *_, rows, _ = yield from connection.exchange((*begin, limited, first, commit))
            return rows
        if connection.server is None:
            connection.server = yield from self._server()
        numbered = connection.request(NUMBERED, limits)
        *_, ((*_, number),), rows = yield from connection.exchange((*begin, numbered, first))
        self._number = number
        return rows
