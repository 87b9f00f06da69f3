"""PostgreSQL: its URL without a password, transactions of our own, and those for a handler.

A transaction that may wait for a lock sets READ COMMITTED, since the server's default may be
another level, and a `lock_timeout` below the server's `deadlock_timeout`: so our transaction
fails, which is retried, and not a caller's. Prepared statements stay on the session, unless it is
pooled.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import weakref
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow, tuple_row

from onefold.databases import raise_translated
from onefold.databases.batching import Groups, HeldKeys, TaskGroup, ThreadGroup
from onefold.databases.deadline import reading_until
from onefold.databases.postgres.errors import classify, tables_in_use, translated, without_password
from onefold.databases.postgres.exchanges import PostgresExchanges
from onefold.databases.postgres.libpq import PIPELINES, AsyncSession, Session
from onefold.databases.postgres.notify import ANSWER, PostgresNotifier, SilentNotifier
from onefold.databases.postgres.pool import (
    CONNECTIONS,
    TCP,
    AsyncPool,
    Pool,
    PooledSession,
    ProcessState,
    agive_back,
    give_back,
    is_full,
    open_in_this_loop,
    pool_settings,
)
from onefold.databases.postgres.reach import LEAST
from onefold.databases.postgres.transaction import (
    RETRIED,
    Effort,
    PostgresTransaction,
    awaited,
    called,
    execute,
)
from onefold.databases.reach import database_wait
from onefold.errors import Closed, DatabaseBusy, SchemaOutdated
from onefold.model.diagnosis import Surroundings
from onefold.operations.migrations import (
    Identity,
    Migration,
    drop_tables,
    found_identity,
    latest,
    pending,
    read_identity,
    script,
    stored_identity,
)
from onefold.operations.statement import Sql, quoted, run, run_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Self

    from onefold.databases import Build, Clock
    from onefold.databases.batching import Item
    from onefold.databases.postgres.transaction import Calls
    from onefold.operations.migrations import StoredIdentity
    from onefold.operations.statement import Operation


T = TypeVar("T")
G = TypeVar("G", ThreadGroup, TaskGroup)


_SESSION: Final = "select pg_backend_pid()"
"""If it differs from the number of the session at its start, there is a pooler."""

DOCTOR: Final = "onefold.doctor"
"""The channel of a notification that is only sent to see whether it arrives."""
MIGRATION_PATIENCE: Final = timedelta(minutes=1)
"""How long `migrate` tries to lock tables that another transaction uses."""


_inherited_by_fork: list[object] = []
"""Pools of the parent process. Closing them in a forked child would end the parent's sessions."""


class PostgresDatabase:
    """One PostgreSQL database. Safe in threads, in several event loops, and after fork."""

    def __init__(
        self,
        url: str,
        *,
        schema: str,
        clock: Clock,
        busy_timeout: timedelta,
        database_wait: timedelta,
        shards: int | None = None,
        prepared_statements: bool | None = None,
        notifies: bool = True,
    ) -> None:
        self.url = url
        self.label: str = without_password(url)
        given = conninfo_to_dict(url)
        self._tcp = {name: value for name, value in TCP.items() if name not in given}
        self._sql_of = partial(Sql, "postgres", schema=schema, notifies=notifies)
        self._set_shards(1)
        self.schema = schema
        self.clock = clock
        self._shards = shards
        self._prepares = prepared_statements
        self._behind_pooler = False
        self.busy_timeout = busy_timeout
        self.database_wait: float = database_wait.total_seconds()
        self._effort = partial(Effort, self.label, busy_timeout, self.busy)
        self._state = ProcessState(url, self.label)
        self._closed = False
        self.name: str = ""
        """The database's own name; read with its identity."""
        self.checked: weakref.WeakKeyDictionary[Any, Identity] = weakref.WeakKeyDictionary()
        """The callers' connections that were found to be to this database."""

    @property
    def database(self) -> Self:
        """Itself: see `Store`."""
        return self

    def transact(
        self,
        build: Build[T],
        *,
        write: bool = True,
        patient: bool = True,
        deadline: float | None = None,
    ) -> T:
        """Run an operation in a transaction, again if the database requires it.

        If the response to the commit is lost, the next try checks the status of the transaction. A
        statement that is committed by itself is sent again: its ids are the client's, so the
        second try finds the rows of the first one.

        One that is not `patient` raises `KeyHeld` if it has to wait for a lock.
        """
        if self._current().identity is None:
            self.identity()
        until = None if write else reading_until()
        effort = self._effort(patient=patient, deadline=deadline, until=until)
        while True:
            pool, connection = self.get_connection(effort.wait)
            try:
                attempt = PostgresTransaction(connection, self.clock, effort, write=write)
                sql = self._sql_retry if effort.resends else self._sql_first_try
                return connection.drive(attempt.run(build, sql))
            except BaseException as error:
                if connection.is_midway:  # interrupted
                    connection.close()
                with suppress(psycopg.Error):
                    connection.rollback()
                if not isinstance(error, RETRIED):
                    raise
                effort.check_deadline()
                lost = connection.closed
                pause = effort.pause(error, connection_lost=lost)
            finally:
                pool.putconn(connection)
            time.sleep(pause)
            if lost:
                pool.check()

    async def atransact(
        self,
        build: Build[T],
        *,
        write: bool = True,
        patient: bool = True,
        deadline: float | None = None,
    ) -> T:
        """`transact`, awaited."""
        if write:
            effort = self._effort(patient=patient, deadline=deadline)
            return await self._atransact(build, effort, write=True)
        effort = self._effort(until=reading_until())
        turns = self._current().turns_in(asyncio.get_running_loop())
        if turns.locked():
            try:
                async with asyncio.timeout(self.busy_timeout.total_seconds()):
                    await turns.acquire()
            except TimeoutError:
                raise self._exhausted() from None
        else:
            await turns.acquire()
        try:
            return await self._atransact(build, effort)
        finally:
            turns.release()

    async def _atransact(self, build: Build[T], effort: Effort, *, write: bool = False) -> T:
        if self._current().identity is None:
            await self.aidentity()
        while True:
            pool, connection = await self.aget_connection(effort.wait)
            try:
                attempt = PostgresTransaction(connection, self.clock, effort, write=write)
                sql = self._sql_retry if effort.resends else self._sql_first_try
                return await connection.drive(attempt.run(build, sql))
            except Exception as error:
                if connection.is_midway:  # as if there was no memory for the next statement
                    await connection.close()
                with suppress(psycopg.Error):
                    await connection.rollback()
                if not isinstance(error, RETRIED):
                    raise
                effort.check_deadline()
                lost = connection.closed
                pause = effort.pause(error, connection_lost=lost)
            except BaseException:
                # Cancelled: the result of the server is not needed any more.
                await connection.close()
                raise
            finally:
                await pool.putconn(connection)
            await asyncio.sleep(pause)
            if lost:
                await pool.check()

    async def alook(self, build: Build[T]) -> T:
        """Read by keys. Other reads leave it a connection, so it never waits for searches."""
        return await self._atransact(build, self._effort())

    def batch(self, item: Item[Any, T]) -> T:
        """Run one item, in one commit with the items of other threads."""
        state = self._current()
        if state.thread_groups is None:
            # Two threads may do so at once. Then their calls are not batched together.
            state.thread_groups = self._groups(ThreadGroup, self.transact)
        return state.thread_groups[item.group, database_wait.get()].run(item)

    async def abatch(self, item: Item[Any, T]) -> T:
        """Run one item, in one commit with the items of other tasks of this event loop."""
        state, loop = self._current(), asyncio.get_running_loop()
        groups = state.task_groups.get(loop)
        if groups is None:
            groups = state.task_groups[loop] = self._groups(TaskGroup, self.atransact)
        return await groups[item.group, database_wait.get()].run(item)

    def _groups(self, kind: Callable[..., G], transact: Callable[..., Any]) -> Groups[G]:
        timeout = self.busy_timeout
        held = HeldKeys(timeout.total_seconds(), partial(self.busy, timeout))
        return Groups(partial(kind, transact), held)

    def get_connection(self, wait: float | None = None) -> tuple[Pool, Session]:
        """A connection in autocommit mode, and the pool that it must return to.

        A request waits for `wait` seconds, unless all connections are in use.
        """
        is_back = False
        while True:
            if wait is not None:
                self._current().reach.refuse_hopeless()
            pool = self._current().pool or self._open_pool()
            try:
                return pool, pool.getconn(wait)
            except psycopg_pool.PoolClosed:
                continue  # By a `close` meanwhile: `_current` raises `Closed`.
            except psycopg_pool.PoolTimeout as error:
                if wait is not None:
                    self._current().reach.refuse_away(wait, error)
                    wait = None
                    continue
                # No free connection, or no server? One connection of our own shows it.
                self._connect().close()
                if is_back or is_full(pool):
                    raise self._exhausted() from error
            is_back = True  # The pool notices it with its next try.

    async def aget_connection(self, wait: float | None = None) -> tuple[AsyncPool, AsyncSession]:
        """`get_connection`, awaited."""
        is_back = False
        while True:
            loop = asyncio.get_running_loop()
            if wait is not None:
                self._current().reach.refuse_hopeless()
            pool = self._current().pools.get(loop) or await self._open_pool_in(loop)
            try:
                return pool, await pool.getconn(wait)
            except psycopg_pool.PoolClosed:
                continue
            except psycopg_pool.PoolTimeout as error:
                if wait is not None:
                    self._current().reach.refuse_away(wait, error)
                    wait = None
                    continue
                await (await self._aconnect()).close()
                if is_back or is_full(pool):
                    raise self._exhausted() from error
            is_back = True

    def _exhausted(self) -> DatabaseBusy:
        return DatabaseBusy(
            f"all {CONNECTIONS} connections of this process are in use.", waited=self.busy_timeout
        )

    def busy(self, waited: timedelta) -> DatabaseBusy:
        """The error for a lock that was not released in time."""
        return DatabaseBusy(
            "another transaction holds this key or row. Commit or roll it back; if it is your own"
            " transaction, use within(connection).",
            waited=waited,
        )

    def _current(self) -> ProcessState:
        if self._closed:
            raise Closed
        if self._state.pid != os.getpid():
            _inherited_by_fork.append(self._state)
            self._state = ProcessState(self.url, self.label)
        return self._state

    def _open_pool(self) -> Pool:
        state = self._current()
        with state.opening:
            if state.pool is None:
                state.pool = psycopg_pool.ConnectionPool(
                    self.url, connection_class=PooledSession, open=True, **self._pool_settings()
                )
            return state.pool

    async def _open_pool_in(self, loop: asyncio.AbstractEventLoop) -> AsyncPool:
        async with self._current().opening_in(loop):
            # Checked again: a pool that is opened after the close would never be closed.
            state = self._current()
            if loop not in state.pools:
                state.forget_ended_loops()
                state.pools[loop] = await open_in_this_loop(self.url, **self._pool_settings())
            return state.pools[loop]

    @property
    def _prepare_threshold(self) -> int | None:
        """Psycopg prepares a statement after five uses, unless there is a pooler.

        A pooler shares one session among clients: we would run a statement that another client has
        prepared under the same name.
        """
        prepares = not self._behind_pooler if self._prepares is None else self._prepares
        return 5 if prepares else None

    def _pool_settings(self) -> dict[str, Any]:
        patience = self.busy_timeout.total_seconds()
        settings = self._connection_settings(self._prepare_threshold, patience)
        return pool_settings(settings, self._current().reach, timeout=patience)

    def _connection_settings(self, prepares: int | None, patience: float) -> dict[str, Any]:
        return {
            "autocommit": True,
            "row_factory": tuple_row,
            "client_encoding": "utf8",
            "connect_timeout": max(LEAST, int(patience)),
            "prepare_threshold": prepares,
            **self._tcp,
        }

    def _own_settings(self) -> dict[str, Any]:
        """Of a connection that is not of a pool."""
        wait, patience = database_wait.get(), self.busy_timeout.total_seconds()
        return self._connection_settings(None, patience if wait is None else wait)

    def _connect(self) -> psycopg.Connection[TupleRow]:
        with self._translating(self._exhausted()):
            return psycopg.connect(self.url, **self._own_settings())

    async def _aconnect(self) -> psycopg.AsyncConnection[TupleRow]:
        settings = self._own_settings()
        with self._translating(self._exhausted()):
            return await psycopg.AsyncConnection.connect(self.url, **settings)

    @contextmanager
    def _translating(self, busy: DatabaseBusy) -> Generator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise_translated(translated(error, self.label, busy), error)

    def identity(self) -> Identity:
        """Read once per process, on a connection of its own, so that a wrong URL fails at once."""
        state, asked = self._current(), time.monotonic()
        if state.identity is None:
            with state.opening:
                if state.identity is None:
                    with self._opening(state, asked), self._connect() as connection:
                        self._accept(state, run(self._read_identity(connection), called))
        assert state.identity is not None
        return state.identity

    async def aidentity(self) -> Identity:
        """`identity`, awaited."""
        state, asked = self._current(), time.monotonic()
        if state.identity is None:
            # One at a time: many first calls at once must not open a connection each.
            async with state.opening_in(asyncio.get_running_loop()):
                if state.identity is None:
                    with self._opening(state, asked):
                        async with await self._aconnect() as connection:
                            reading = self._read_identity(connection)
                            self._accept(state, await run_async(reading, awaited))
        assert state.identity is not None
        return state.identity

    @contextmanager
    def _opening(self, state: ProcessState, asked: float) -> Generator[None]:
        with state.outcome(asked), self._translating(self.busy(self.busy_timeout)):
            yield

    def _read_identity(self, connection: Any) -> Calls[StoredIdentity]:
        cursor = connection.cursor()
        yield cursor.execute, _SESSION
        ((session,),) = yield (cursor.fetchall,)
        self._behind_pooler = session != connection.info.backend_pid
        return (yield from self._calls(cursor, stored_identity(self.sql)))

    def _calls(self, cursor: Any, operation: Operation[T]) -> Calls[T]:
        rows = None
        while True:
            try:
                statement = next(operation) if rows is None else operation.send(rows)
            except StopIteration as finished:
                result: T = finished.value
                return result
            rows = yield from execute(cursor, statement, self.clock)

    async def anotifier(self) -> PostgresNotifier | SilentNotifier:
        """Notifies a worker when jobs were stored."""
        await self.aidentity()
        if self._behind_pooler or not self.sql.notifies:
            return SilentNotifier()
        return PostgresNotifier(self._aconnect, self.schema)

    def surroundings(self) -> Surroundings:
        """Whether there is a pooler, and whether a notification arrives."""
        self.identity()
        if self._behind_pooler:
            return Surroundings(pooled=True)
        with self._connect() as listener, self._connect() as sender:
            listener.execute(f"listen {quoted(DOCTOR)}".encode())
            sender.execute("select pg_notify(%s, '')", [DOCTOR])
            arrived = list(listener.notifies(timeout=ANSWER, stop_after=1))
        return Surroundings(listens=bool(arrived))

    def exchanges(self) -> PostgresExchanges | None:
        """Exchanges on a connection of their own. It prepares statements, for one shard."""
        if self._behind_pooler or not self._prepare_threshold or self.sql.shards > 1:
            return None
        return PostgresExchanges(self._aconnect, self.sql, self.clock) if PIPELINES else None

    def _accept(self, state: ProcessState, found: StoredIdentity) -> None:
        identity = self.identity_from(found.text)
        identity.refuse_other_shards(self._shards, self.label)
        self._set_shards(identity.shards, distributed=found.distributed)
        self.name = found.database
        state.identity = identity

    def _set_shards(self, shards: int, *, distributed: bool = False) -> None:
        sql_of = partial(self._sql_of, shards=shards, distributed=distributed)
        self.sql: Sql = sql_of()
        self._sql_first_try = sql_of(restarts=True)
        """For the first try of a transaction of our own, which can be restarted."""
        self._sql_retry = sql_of(restarts=True, resends=True)

    def identity_from(self, text: str | None) -> Identity:
        """The identity in the row that has it; raises if it is missing or too old."""
        identity = (
            read_identity(text, "postgres", self.label, schema=self.schema)
            if text
            else Identity("")
        )
        if identity.version < latest("postgres"):
            raise SchemaOutdated(
                found=identity.version,
                needed=latest("postgres"),
                where=self.label,
                schema=self.schema,
            )
        return identity

    def migrate(self, *, fresh: bool = False) -> list[Migration]:
        """Apply pending migrations, in one transaction, under a lock that all migrators share."""
        started = time.monotonic()
        while True:
            try:
                migrations = self._migrate(fresh=fresh)
            except psycopg.Error as error:
                waited = timedelta(seconds=time.monotonic() - started)
                error_class = classify(error, connection_lost=False)
                if (
                    error_class not in {"serialization", "lock_timeout"}
                    or waited >= MIGRATION_PATIENCE
                ):
                    raise_translated(translated(error, self.label, tables_in_use(waited)), error)
            else:
                self._current().identity = None
                return migrations
            # Longer than the wait for a lock: calls that queued behind it can run.
            time.sleep(0.5 + random.random())

    def _migrate(self, *, fresh: bool) -> list[Migration]:
        with self._connect() as connection, connection.transaction():
            cursor = connection.cursor()
            cursor.execute("select pg_advisory_xact_lock(hashtext(%s))", [f"onefold {self.schema}"])
            # All calls that queue behind a waiting lock wait as long as it does.
            cursor.execute("set local lock_timeout = 100")
            text = run(self._calls(cursor, stored_identity(self.sql)), called).text
            if fresh and text:
                run(self._calls(cursor, drop_tables(self.sql)), called)
                text = None
            found = found_identity(text, "postgres", self._shards, self.label, schema=self.schema)
            migrations = pending("postgres", found.version, schema=self.schema)
            if migrations:
                identity = found.migrated("postgres")
                text = script("postgres", migrations, identity, schema=self.schema)
                cursor.execute(text.encode())
        return migrations

    async def amigrate(self) -> list[Migration]:
        """`migrate`, in a thread: it is a deploy step, not a hot path."""
        return await asyncio.to_thread(self.migrate)

    def close(self) -> None:
        """Close the sync pool, and the connections of event loops that have ended."""
        state = self._end()
        state.forget_ended_loops()
        if state.pool is not None:
            state.pool.close()
            state.pool = None

    async def aclose(self) -> None:
        """Close this event loop's pool and the sync one."""
        pool = self._end().pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()
        await asyncio.to_thread(self.close)

    def _end(self) -> ProcessState:
        """Reject all further calls."""
        state = self._state if self._closed else self._current()
        self._closed = state.reach.is_closed = True
        return state

    @contextmanager
    def handler_transaction(self) -> Generator[Session]:
        """A connection of ours, in a transaction for a handler."""
        self.identity()
        effort = self._effort()
        with ExitStack() as ending:
            while True:
                pool, connection = self.get_connection(effort.wait)
                ending.callback(give_back, pool, connection)
                try:
                    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                    ending.enter_context(connection.transaction())
                    break
                except psycopg.Error as error:
                    pause = effort.pause(error, connection_lost=connection.closed)
                ending.close()
                time.sleep(pause)
                pool.check()
            yield connection

    @asynccontextmanager
    async def ahandler_transaction(
        self, first: Build[Any] | None = None
    ) -> AsyncGenerator[AsyncSession]:
        """`handler_transaction`, awaited."""
        del first  # run by the caller
        await self.aidentity()
        effort = self._effort()
        async with AsyncExitStack() as ending:
            while True:
                pool, connection = await self.aget_connection(effort.wait)
                ending.push_async_callback(agive_back, pool, connection)
                try:
                    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
                    await ending.enter_async_context(connection.transaction())
                    break
                except psycopg.Error as error:
                    pause = effort.pause(error, connection_lost=connection.closed)
                await ending.aclose()
                await asyncio.sleep(pause)
                await pool.check()
            yield connection
