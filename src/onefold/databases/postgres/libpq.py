"""Statements on our own connections, by calls of libpq.

Psycopg's cursor takes twice the time for a statement, and its pipeline four times the time. Values
are sent as text: each has a cast in its statement. Results are binary: numbers are read in half the
time. A statement is prepared when it is used again, unless there is a pooler.

A trip to the server is a generator. It yields what it waits for, as those of psycopg do, and
`drive` waits, blocking or awaiting.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import waiting
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.rows import TupleRow
from psycopg.waiting import Ready, Wait

from onefold.databases.reach import database_wait
from onefold.operations.statement import Rows, array_literal, compiled, run_async

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult

    from onefold.databases import Clock
    from onefold.databases.postgres.reach import PostgresReach
    from onefold.operations.statement import Statement

T = TypeVar("T")

Waits: TypeAlias = Generator[Wait, Ready | int, T]
"""Yields what it waits for on the socket; receives what is ready, or nothing after a while."""

PIPELINES: Final = psycopg.Pipeline.is_supported()
"""libpq has them since version 14; without them, the statements are sent one by one."""

UNPREPARED: Final = (
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.FeatureNotSupported,
)
"""The errors of a prepared statement that is not there any more, or whose tables have changed."""

INTERRUPTIBLE: Final = 0.1
"""Seconds after which a blocking wait lets Python handle signals, and a request looks at the time.
"""


class Silent(psycopg.OperationalError):
    """The server has not answered a request in time."""


class SessionStatement:
    """A statement on one connection: its name there, and how its values are read and written."""

    def __init__(self, text: str, name: bytes, connection: Any) -> None:
        numbered, self._parameters = compiled(text, "numbered")
        self.text: bytes = numbered.encode()
        self.name = name
        self.is_prepared: bool = False
        self.was_used: bool = False
        self._formats = [PyFormat.TEXT] * len(self._parameters)
        self._transformer = Transformer(connection)
        self._knows_columns = False

    def values(self, given: Mapping[str, Any]) -> Sequence[Any]:
        """The values as text, in their order."""
        values = [given[name] for name in self._parameters]
        return self._transformer.dump_sequence(values, self._formats)

    def rows(self, result: PGresult) -> Rows:
        """The rows of a result; its columns are those of the first one."""
        if not result.nfields:
            return ()
        transformer = self._transformer
        transformer.set_pgresult(result, set_loaders=not self._knows_columns)
        self._knows_columns = True
        rows = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None, set_loaders=False)  # free the result
        return rows


def values_of(statement: Statement, clock: Clock, patience: str | None = None) -> dict[str, Any]:
    """The values of a statement.

    `patience`: the lock timeout that a statement sets which is committed by itself.
    """
    given = statement.arrays(array_literal)
    given["now"] = None if clock is None else clock()
    given["patience"] = patience
    return given


class Request(NamedTuple):
    """A statement that is to be sent, and its values."""

    statement: SessionStatement
    values: Sequence[Any]


class LibpqSession(psycopg.BaseConnection[TupleRow]):
    """What blocking and async connections have in common."""

    answers: int = 0
    """How many responses the server has given."""
    reach: PostgresReach | None = None
    """None if it is not of a pool."""
    server: str | None = None
    """The identity of the server: known once a transaction of several statements has begun."""
    was_lent: bool = False
    """True if a handler has used it. Psycopg or the handler may have removed our statements."""

    @cached_property
    def trips(self) -> deque[Trip]:
        """What was sent ahead, in its order: the results are not read yet."""
        return deque()

    @cached_property
    def statements(self) -> dict[str, SessionStatement]:
        """The statements that this connection has used, by their text: as many as we have."""
        return {}

    @property
    def is_midway(self) -> bool:
        """True if a response was not read to its end: the connection cannot be used again."""
        pq = self.pgconn
        return (
            pq.transaction_status == TransactionStatus.ACTIVE
            or pq.pipeline_status != PipelineStatus.OFF
        )

    def within_wait(self, waits: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """The same; for a request, it ends if the server is silent for too long."""
        wait, reach = database_wait.get(), self.reach
        return waits if wait is None or reach is None else self._within(waits, wait, reach)

    def _within(
        self, waits: Generator[Any, Any, T], wait: float, reach: PostgresReach
    ) -> Generator[Any, Any, T]:
        heard_at, ready = time.monotonic(), 0
        try:
            wanted = next(waits)
            while True:
                try:
                    ready = yield wanted
                except BaseException as error:  # noqa: BLE001 - raised there
                    wanted = waits.throw(error)
                    continue
                now = time.monotonic()
                heard_at = now if ready else max(heard_at, reach.answered_at)
                if now - heard_at >= wait:
                    self.pgconn.finish()
                    silence = Silent(f"no answer in {wait:g} s")
                    reach.gave_up(silence)
                    raise silence
                if now - heard_at >= wait / 2:
                    reach.ask()
                wanted = waits.send(ready)
        except StopIteration as finished:
            if ready:  # else nothing was sent: psycopg changed a setting of its own
                reach.succeeded()
            result: T = finished.value
            return result
        finally:
            waits.close()

    def count_answer(self) -> None:
        """Count a response of the server."""
        self.answers += 1

    def request(self, text: str, given: Mapping[str, Any]) -> Request:
        """A statement with its values, ready to be sent."""
        statement = self.statements.get(text)
        if statement is None:
            name = b"onefold_%d" % len(self.statements)
            statement = self.statements[text] = SessionStatement(text, name, self)
        return Request(statement, statement.values(given))

    def execute_request(self, request: Request) -> Waits[Rows]:
        """Run one statement."""
        (rows,) = yield from self.exchange((request,))
        return rows

    def exchange(self, requests: Sequence[Request]) -> Waits[list[Rows]]:
        """Run statements in one round trip; the first error is raised, and ends them."""
        steps = self._steps(requests)
        results: list[PGresult] = []
        is_worn = False
        try:
            if self.trips:
                results = yield from self._end_trips(steps)
            elif PIPELINES or len(steps) == 1:
                results = yield from _trip(self.pgconn, steps)
            else:
                for step in steps:
                    results += yield from _trip(self.pgconn, [step])
        except UNPREPARED:
            self.pgconn.finish()  # it would fail again
            if not self.was_lent:
                raise
            is_worn = True
        if is_worn:
            # As of a lost connection: tried again on another one. Not from the server's error.
            raise psycopg.OperationalError("a handler has removed our prepared statements")
        self.count_answer()
        return [
            statement.rows(result)
            for (statement, values), result in zip(steps, results, strict=True)
            if values is not None
        ]

    def _steps(self, requests: Sequence[Request]) -> list[Step]:
        """The steps of requests; a statement that is used again is also prepared."""
        # What was sent ahead may have been the same statement, and is not yet known to be prepared.
        prepares = self.prepare_threshold is not None and not self.trips
        steps: list[Step] = []
        for statement, values in requests:
            if not statement.is_prepared and statement.was_used and prepares:
                steps.append((statement, None))  # for the next time
                statement.was_used = False
            else:
                statement.was_used = True
            steps.append((statement, values))
        return steps

    def send_ahead(self, request: Request, receive: Callable[[Rows], None]) -> Waits[None]:
        """Send a statement; the next `exchange` passes its rows to `receive`.

        It is in a transaction block, and a Sync follows: if this process freezes meanwhile, the
        server ends the transaction.
        """
        pq = self.pgconn
        if not self.trips:
            steps = self._steps([request])
            if len(steps) > 1:
                yield from _trip(pq, steps[:1])  # it is prepared
            pq.enter_pipeline_mode()
        yield from self._send_trip(Trip([request], receive))

    def discard_trips(self) -> Waits[None]:
        """Read the results of what was sent ahead: another part of the transaction has failed."""
        while self.trips and self.pgconn.status == ConnStatus.OK:
            yield from self._read_trip()

    def _end_trips(self, steps: Sequence[Step]) -> Waits[list[PGresult]]:
        """Send the last statements, and read the results of all: the server works meanwhile."""
        yield from self._send_trip(Trip(steps))
        while True:
            trip, results, error = yield from self._read_trip()
            if error is not None:
                raise error
            if trip.receive is None:
                return results
            ((statement, _),) = trip.steps
            trip.receive(statement.rows(results[0]))

    def _send_trip(self, trip: Trip) -> Waits[None]:
        yield from self._unbroken(_send_all(self.pgconn, trip.steps))
        self.trips.append(trip)

    def _read_trip(self) -> Waits[tuple[Trip, list[PGresult], psycopg.Error | None]]:
        results, error = yield from self._unbroken(_results(self.pgconn, self.trips[0].steps, SYNC))
        trip = self.trips.popleft()
        if not self.trips:
            _leave_pipeline(self.pgconn)
        return trip, results, error

    def _unbroken(self, waits: Waits[T]) -> Waits[T]:
        """Wait; after an error between two messages, what was sent ahead cannot be read any more.

        The pipeline stays open, so the connection is closed.
        """
        try:
            return (yield from waits)
        except BaseException:
            self.trips.clear()
            raise


class Trip(NamedTuple):
    """Statements that were sent in a pipeline, and the function that receives the rows."""

    steps: Sequence[Step]
    receive: Callable[[Rows], None] | None = None
    """None for the last ones, which were not sent ahead."""


Step: TypeAlias = tuple[SessionStatement, Sequence[Any] | None]
"""A statement with its values; without them, it is prepared."""


SYNC: Final = ExecStatus.PIPELINE_SYNC


def _trip(pq: PGconn, steps: Sequence[Step]) -> Waits[list[PGresult]]:
    if len(steps) == 1:
        _send(pq, *steps[0])
        yield from _flush(pq)
        results, error = yield from _results(pq, steps, None)
    else:
        pq.enter_pipeline_mode()
        yield from _send_all(pq, steps)
        results, error = yield from _results(pq, steps, SYNC)
        _leave_pipeline(pq)
    if error is not None:
        raise error
    return results


def _send_all(pq: PGconn, steps: Sequence[Step]) -> Waits[None]:
    """Send steps and a Sync, in a pipeline."""
    for step in steps:
        _send(pq, *step)
    # Nothing follows the Sync: at a Flush, the server stops the clock of its idle timeout.
    pq.pipeline_sync()
    yield from _flush(pq)


def _leave_pipeline(pq: PGconn) -> None:
    if pq.status == ConnStatus.OK:
        pq.exit_pipeline_mode()


def _flush(pq: PGconn) -> Waits[None]:
    """Send all; read meanwhile, so that the server can send, too."""
    while pq.flush():
        if (yield Wait.RW) & Ready.R:
            pq.consume_input()


def _send(pq: PGconn, statement: SessionStatement, values: Sequence[Any] | None) -> None:
    if values is None:
        pq.send_prepare(statement.name, statement.text)
    elif statement.is_prepared:
        pq.send_query_prepared(statement.name, values, result_format=Format.BINARY)
    else:
        pq.send_query_params(statement.text, values, result_format=Format.BINARY)


SUCCESS: Final = {ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK}
NOTHING: Final[set[ExecStatus | None]] = {None, ExecStatus.PIPELINE_ABORTED}


def _results(
    pq: PGconn, steps: Sequence[Step], end: ExecStatus | None
) -> Waits[tuple[list[PGresult], psycopg.Error | None]]:
    """The results until the end, and the first error."""
    results: list[PGresult] = []
    error: psycopg.Error | None = None
    try:
        while (result := (yield from _next(pq))) is not None or end is not None:
            status = None if result is None else result.status
            if result is not None and status in SUCCESS:
                statement, values = steps[len(results)]
                statement.is_prepared = statement.is_prepared or values is None
                results.append(result)
            elif status == end:
                break
            elif result is not None and status not in NOTHING:
                error = error or psycopg.errors.error_from_result(result, encoding="utf-8")
    except psycopg.Error as lost:
        # The server's own error, if it has sent one before it closed the connection.
        error = error or lost
    return results, error


def _next(pq: PGconn) -> Waits[PGresult | None]:
    while pq.is_busy():
        if (yield Wait.R):
            pq.consume_input()
    result = pq.get_result()
    if result is None and pq.status != ConnStatus.OK:
        # libpq would return None without end.
        raise psycopg.OperationalError("the connection is lost")
    return result


class Session(LibpqSession, psycopg.Connection[TupleRow]):
    """A blocking connection."""

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Every exchange of psycopg goes through here."""
        answer = super().wait(self.within_wait(gen), *args, **options)
        self.count_answer()
        return answer

    def drive(self, trips: Waits[T]) -> T:
        """Carry out trips to the server."""
        return waiting.wait(self.within_wait(trips), self.pgconn.socket, INTERRUPTIBLE)


class AsyncSession(LibpqSession, psycopg.AsyncConnection[TupleRow]):
    """An async connection."""

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Every exchange of psycopg goes through here."""
        answer = await super().wait(self.within_wait(gen), *args, **options)
        self.count_answer()
        return answer

    async def drive(self, trips: Waits[T]) -> T:
        """Carry out trips to the server."""
        return await run_async(self.within_wait(trips), self._ready)

    async def _ready(self, wanted: Wait) -> Ready | int:
        # The event loop must not watch the socket while libpq works: libpq may close it, and uvloop
        # then misses what happens to the next socket of the same number.
        loop, socket = asyncio.get_running_loop(), self.pgconn.socket
        waiter: asyncio.Future[Ready | int] = loop.create_future()
        # A request that waits looks at the time.
        is_request = database_wait.get() is not None
        timer = loop.call_later(INTERRUPTIBLE, _wake, waiter, 0) if is_request else None
        loop.add_reader(socket, _wake, waiter, Ready.R)
        if wanted & Wait.W:
            loop.add_writer(socket, _wake, waiter, Ready.W)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            loop.remove_reader(socket)
            if wanted & Wait.W:
                loop.remove_writer(socket)


def _wake(waiter: asyncio.Future[Ready | int], ready: Ready | int) -> None:
    if not waiter.done():
        waiter.set_result(ready)
