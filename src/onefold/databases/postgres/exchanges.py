"""The exchanges of a worker with PostgreSQL, on a connection of their own.

An operation is sent at once, by calls of libpq, in the callback of the event loop that built it.
Psycopg needs several turns of the event loop for a pipeline, and handlers run in each of them.

One exchange is one round trip and, by its Sync, one transaction. If it fails, in any way, the
caller runs the operation on the pool, where it is retried and its error is translated. So only
operations whose statements may be committed by themselves, and never wait for a row, are sent here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format

from onefold.databases.postgres.libpq import SessionStatement, values_of
from onefold.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from psycopg.pq.abc import PGconn, PGresult

    from onefold.databases import Build, Clock
    from onefold.operations.statement import Operation, Sql, Statement

SESSION: Final = (
    b"set default_transaction_isolation = 'read committed';"
    # Nothing here waits for a row; but a table may be locked, as by a migration.
    b" set lock_timeout = 800;"
    # A plan that is made while the table is empty and vacuumed would read the whole table later, or
    # all ready jobs to sort them.
    b" set enable_seqscan = off; set enable_bitmapscan = off"
)
PAUSE: Final = 1.0
"""Seconds after a failure until the next attempt to connect. Exchanges use the pool meanwhile."""


class _Unsuitable(Exception):
    """A statement that cannot be sent here."""


class _SentOperation:
    """An operation whose statement was sent."""

    def __init__(self, operation: Operation[Any], answered: Callable[[Any], None]) -> None:
        self.operation = operation
        self.answered = answered
        self.prepared: SessionStatement | None = None
        self.result: PGresult | None = None
        self.failed = False


class PostgresExchanges:
    """Exchanges in one event loop, on a connection that is opened when it is needed."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]],
        sql: Sql,
        clock: Clock,
    ) -> None:
        """`connect` returns a connection in autocommit mode."""
        self._connect = connect
        self._sql = sql
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._session: psycopg.AsyncConnection[Any] | None = None
        self._pq: PGconn | None = None
        """The connection, as soon as it can be used."""
        self._socket = -1
        """Its socket; libpq does not name it any more if the connection is lost."""
        self._prepared: dict[str, SessionStatement] = {}
        self._open: deque[_SentOperation] = deque()
        """Exchanges without a response, in the order in which they were sent."""
        self._connecting: asyncio.Task[None] | None = None
        self._next_try = 0.0
        self._worn = False
        """True after an error: the connection is replaced, with its prepared statements. Until then
        nothing is sent, so that what has failed here runs on the pool."""

    def send(self, build: Build[Any], answered: Callable[[Any], None]) -> bool:
        """Send an operation; False if there is no connection for it now.

        `answered` is called in the event loop, with the result of the operation, or with None if it
        failed. Then it may have been committed, or be committed later.
        """
        if self._pq is None or self._worn:
            self._reconnect()
            return False
        exchange = _SentOperation(build(self._sql), answered)
        self._transmit(exchange, next(exchange.operation))
        return True

    async def close(self) -> None:
        """Close the connection. The caller has the responses that it needs."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        self._disconnect()
        self._next_try = float("inf")

    # --- the connection -------------------------------------------------------------------------

    def _reconnect(self) -> None:
        if self._open:
            return  # they are answered first
        self._disconnect()
        if self._connecting is None and time.monotonic() >= self._next_try:
            self._connecting = self._loop.create_task(self._open_session())

    async def _open_session(self) -> None:
        session: psycopg.AsyncConnection[Any] | None = None
        try:
            session = await self._connect()
            await session.execute(SESSION, prepare=False)
            session.pgconn.enter_pipeline_mode()
            self._socket = session.pgconn.socket
            self._loop.add_reader(self._socket, self._read)
        except (psycopg.Error, DatabaseError, NotImplementedError):
            # The calls on the pool report it. Not implemented: add_reader, by some event loops.
            self._next_try = time.monotonic() + PAUSE
            if session is not None:
                await session.close()
        except asyncio.CancelledError:
            if session is not None:
                await session.close()
            raise
        else:
            self._session, self._pq = session, session.pgconn
        finally:
            self._connecting = None

    def _disconnect(self) -> None:
        pq, self._pq, self._worn = self._pq, None, False
        self._prepared.clear()
        if pq is not None:
            self._next_try = time.monotonic() + PAUSE
            for remove in (self._loop.remove_reader, self._loop.remove_writer):
                with suppress(OSError):  # libpq has closed the socket of a lost connection
                    remove(self._socket)
            pq.finish()
        self._session = None

    def _lose(self) -> None:
        """The connection is lost, with all responses that are missing."""
        lost, self._open = self._open, deque()
        self._disconnect()
        for exchange in lost:
            exchange.operation.close()
            self._loop.call_soon(exchange.answered, None)  # `send` returns before

    # --- requests -------------------------------------------------------------------------------

    def _transmit(self, exchange: _SentOperation, statement: Statement) -> None:
        """Send the next statement of an operation."""
        pq = self._pq
        assert pq is not None
        exchange.result = None
        self._open.append(exchange)
        try:
            exchange.prepared = self._send_one(statement, pq)
        except (_Unsuitable, psycopg.DataError):
            exchange.failed = self._worn = True  # the operation runs again on the pool
        except psycopg.Error:
            self._lose()
            return
        try:
            pq.pipeline_sync()
        except psycopg.Error:
            self._lose()
        else:
            self._write()

    def _send_one(self, statement: Statement, pq: PGconn) -> SessionStatement:
        if statement.waits or not statement.alone:
            raise _Unsuitable
        prepared = self._prepared.get(statement.text)
        given = values_of(statement, self._clock)
        if prepared is not None:
            values = prepared.values(given)
            pq.send_query_prepared(prepared.name, values, result_format=Format.BINARY)
            return prepared
        name = b"onefold_%d" % len(self._prepared)
        prepared = SessionStatement(statement.text, name, self._session)
        values = prepared.values(given)
        pq.send_prepare(name, prepared.text)
        pq.send_query_prepared(name, values, result_format=Format.BINARY)
        self._prepared[statement.text] = prepared
        return prepared

    def _write(self) -> None:
        """Send what is buffered, as far as the socket accepts it."""
        pq = self._pq
        if pq is None:
            return
        try:
            unsent = pq.flush()
        except psycopg.Error:
            self._lose()
            return
        if unsent:
            self._loop.add_writer(self._socket, self._writable)
        else:
            self._loop.remove_writer(self._socket)

    def _writable(self) -> None:
        """Write on. Then process responses, which libpq may have read while it was writing."""
        self._write()
        self._read()

    # --- responses ------------------------------------------------------------------------------

    def _read(self) -> None:
        """Process the responses that have arrived."""
        pq = self._pq
        if pq is None:
            return
        try:
            pq.consume_input()
            # Of a lost connection, libpq returns None without end.
            while self._open and pq.status == ConnStatus.OK and not pq.is_busy():
                result = pq.get_result()
                if result is not None:
                    self._receive(result)
        except psycopg.Error:
            self._lose()
            return
        if self._pq is pq and pq.status != ConnStatus.OK:
            self._lose()
        elif self._open:
            # After an error of the socket, uvloop calls once and never again; libpq may have read
            # only what the server sent before it closed the connection.
            self._loop.remove_reader(self._socket)
            self._loop.add_reader(self._socket, self._read)

    def _receive(self, result: PGresult) -> None:
        exchange = self._open[0]
        match result.status:
            case ExecStatus.TUPLES_OK:
                exchange.result = result
            case ExecStatus.COMMAND_OK:
                pass  # the statement was prepared
            case ExecStatus.PIPELINE_SYNC:
                self._open.popleft()
                self._end(exchange)
            case _:
                exchange.failed = self._worn = True
                if result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) in {
                    b"FATAL",
                    b"PANIC",
                }:
                    raise psycopg.OperationalError("the server has ended the connection")

    def _end(self, exchange: _SentOperation) -> None:
        """The transaction has ended: continue the operation."""
        if exchange.failed:
            exchange.operation.close()
            exchange.answered(None)
            return
        assert exchange.prepared is not None
        assert exchange.result is not None
        try:
            statement = exchange.operation.send(exchange.prepared.rows(exchange.result))
        except StopIteration as finished:
            exchange.answered(finished.value)
        except Exception:  # noqa: BLE001 - raised again where the caller runs the operation
            exchange.answered(None)
        else:
            self._transmit(exchange, statement)
