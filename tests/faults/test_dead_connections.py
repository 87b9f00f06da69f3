"""A transaction that is begun for a handler begins on a connection that answers."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import psycopg_pool
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from onefold import DatabaseUnavailable, Defer, Onefold, Run
from onefold.databases.handler_transaction import abegin, begin
from onefold.databases.postgres import PostgresDatabase, libpq
from onefold.model.places import Places
from onefold.operations.statement import Operation, Sql
from tests.effects.deliveries import ColouredRun, execute
from tests.faults.callers import Colour
from tests.faults.servers import Sessions, until, url_as
from tests.fixtures.colours import Coloured
from tests.fixtures.patience import HANG
from tests.fixtures.proof import proved

LEASE = timedelta(minutes=1)
CONNECTIONS = 4
OFTEN = 8
"""Uses after which psycopg and we have prepared a statement."""


@pytest.fixture
def onefold(sessions: Sessions, migrated: str) -> Iterator[Onefold]:
    with Onefold(sessions.url, schema=migrated) as onefold:
        onefold.enqueue("work", max_attempts=1)
        yield onefold


async def test_dead_connections_are_replaced(
    onefold: Onefold, sessions: Sessions, colour: Colour
) -> None:
    run = _take(onefold, colour)
    await _use_many(onefold, colour, None)
    sessions.end()

    async with run.transaction() as tx:
        await _execute(tx)

    assert run.target.completed
    await onefold.aclose()


async def test_a_connection_that_dies_before_the_first_statement_costs_no_attempt(
    onefold: Onefold, sessions: Sessions, colour: Colour
) -> None:
    async def die_unused() -> None:
        async with _take(onefold, colour).transaction() as tx:
            sessions.end()
            await _execute(tx)

    async def die_later() -> None:
        async with _take(onefold, colour).transaction() as tx:
            await _execute(tx)
            sessions.end()
            await _execute(tx)

    with pytest.raises(Defer):
        await die_unused()
    onefold.enqueue("work")
    with pytest.raises(psycopg.OperationalError):
        await die_later()
    await onefold.aclose()


async def test_a_handler_that_removes_our_prepared_statements_costs_no_call(
    onefold: Onefold, colour: Colour
) -> None:
    """Psycopg removes all of a session at a rollback, if it has prepared some itself."""

    async def enqueue_often() -> None:
        for _ in range(OFTEN):
            await Coloured(onefold, colour).enqueue("other")

    async def fail() -> None:
        async with AsyncExitStack() as ending:
            connection = await _begin(ending, onefold, colour)
            for _ in range(OFTEN):
                await _execute(connection)
            raise LookupError

    await enqueue_often()
    with pytest.raises(LookupError):
        await fail()
    await enqueue_often()
    assert len(list(onefold.find(kind="other"))) == 2 * OFTEN
    await onefold.aclose()


async def test_a_connection_whose_statements_were_sent_in_part_is_not_used_again(
    onefold: Onefold, colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = libpq._send
    sent: list[object] = []

    def send_only_one(*step: Any) -> None:
        if sent:
            raise MemoryError
        sent.append(step)
        send(*step)

    async def replace() -> None:
        calls = Coloured(onefold, colour)
        await calls.enqueue("other", unique_key="key", on_duplicate="replace")

    for _ in range(OFTEN):
        await replace()
    with monkeypatch.context() as patch:
        patch.setattr(libpq, "_send", send_only_one)
        with pytest.raises(MemoryError):
            await replace()
    async with asyncio.timeout(HANG):
        await replace()
    await onefold.aclose()


async def test_an_encoding_that_a_handler_has_set_is_not_ours(
    onefold: Onefold, colour: Colour
) -> None:
    for _ in range(OFTEN):
        await onefold.aenqueue("other", {"name": "ä"})
        onefold.enqueue("other", {"name": "ä"})
        async with AsyncExitStack() as ending:
            connection = await _begin(ending, onefold, colour)
            await execute(connection, "set client_encoding to latin1")
    assert {job.payload["name"] for job in onefold.find(kind="other")} == {"ä"}
    await onefold.aclose()


def test_a_server_that_ends_idle_transactions_costs_an_attempt(
    postgres_url: str, migrated: str, observer: psycopg.Connection
) -> None:
    """It would end the next one too."""
    name = f"idle_{uuid4().hex[:8]}"
    options = "-c idle_in_transaction_session_timeout=50"
    url = url_as(postgres_url, application_name=name, options=options)

    def idle(run: ColouredRun) -> None:
        with run.target.transaction() as tx:
            query = "select 1 from pg_stat_activity where application_name = %s"
            until(lambda: not observer.execute(query, [name]).fetchall())
            tx.execute("select 1")

    with Onefold(url, schema=migrated) as onefold:
        onefold.enqueue("work")
        run = _take(onefold, "sync")
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            idle(run)


@pytest.mark.parametrize("has_time", [True, False])
def test_a_transaction_of_ours_that_was_idle_for_too_long_is_tried_again(
    onefold: Onefold, sessions: Sessions, monkeypatch: pytest.MonkeyPatch, *, has_time: bool
) -> None:
    """As of a process that was frozen between two statements."""
    monkeypatch.setattr("onefold.databases.postgres.transaction.AWAKE", "50")
    database, freezes = onefold.context.database, [sessions.until_ended]
    assert isinstance(database, PostgresDatabase)

    def look_twice(sql: Sql) -> Operation[str]:
        yield sql("look", shard=0, queues=[], **Places().spans([0], []))
        if freezes:
            freezes.pop()()
        yield sql("look", shard=0, queues=[], **Places().spans([0], []))
        return "done"

    if has_time:
        assert database.transact(look_twice) == "done"
    else:
        with pytest.raises(DatabaseUnavailable, match="Nothing of this call was stored"):
            database.transact(look_twice, deadline=time.monotonic())


@pytest.mark.parametrize(
    "target",
    [
        "engine",
        *proved("psycopg pool", "sessionmaker"),
    ],
)
async def test_dead_connections_of_the_applications_pool_are_replaced(
    onefold: Onefold, sessions: Sessions, colour: Colour, target: str
) -> None:
    async with _pool(sessions.url, colour, target) as pool:
        await _use_many(onefold, colour, pool)
        sessions.end()

        run = _take(onefold, colour)
        async with run.transaction(pool) as tx:
            await _execute(tx)

        assert run.target.completed
        await onefold.aclose()


def _take(onefold: Onefold, colour: Colour) -> ColouredRun:
    (job,) = onefold.deliveries.take(worker="worker", lease=LEASE)
    run = Run(onefold.context, job, lease=LEASE, worker="worker")
    return ColouredRun(run, colour)


async def _use_many(onefold: Onefold, colour: Colour, pool: Any) -> None:
    """Have several connections open at once, and idle afterwards."""
    async with AsyncExitStack() as at_once:
        for _ in range(CONNECTIONS):
            await _execute(await _begin(at_once, onefold, colour, pool))


async def _begin(ending: AsyncExitStack, onefold: Onefold, colour: Colour, pool: Any = None) -> Any:
    """The connection of a transaction that ends with the stack."""
    database = onefold.context.database
    if colour == "async":
        return (await ending.enter_async_context(await abegin(pool, database))).connection
    return ending.enter_context(begin(pool, database)).connection


async def _execute(connection: Any) -> None:
    through_sqlalchemy = type(connection).__module__.startswith("sqlalchemy")
    await execute(connection, text("select 1") if through_sqlalchemy else "select 1")


@asynccontextmanager
async def _pool(url: str, colour: Colour, name: str) -> AsyncGenerator[Any]:
    dialect = url.replace("postgresql://", "postgresql+psycopg://", 1)
    if name == "psycopg pool" and colour == "sync":
        with psycopg_pool.ConnectionPool(url, max_size=CONNECTIONS, open=True) as pool:
            yield pool
    elif name == "psycopg pool":
        async with psycopg_pool.AsyncConnectionPool(url, max_size=CONNECTIONS, open=False) as pool:
            yield pool
    elif colour == "sync":
        engine = create_engine(dialect)
        yield engine if name == "engine" else sessionmaker(engine)
        engine.dispose()
    else:
        awaited = create_async_engine(dialect)
        yield awaited if name == "engine" else async_sessionmaker(awaited)
        await awaited.dispose()
