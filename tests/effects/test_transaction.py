"""`run.transaction()`: the handler's rows and the job's completion, or neither."""

import sqlite3
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row
from sqlalchemy import text as clause
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from onefold import InvalidInput, LeaseLost, UsageError, WouldDeadlock, WrongConnection
from tests.effects.deliveries import ColouredRun, Deliveries, execute
from tests.fixtures.colours import Colour, Dialect, Store
from tests.fixtures.connection import Kind
from tests.fixtures.connections import Effects
from tests.fixtures.sqlalchemy_connections import async_engine_of, engine_of


class Failed(Exception):
    """What a handler raises."""


def state(deliveries: Deliveries, run: ColouredRun) -> str | None:
    job = deliveries.onefold.get(run.target.id)
    return None if job is None else job.state


async def test_rows_and_completion_are_one_commit(
    deliveries: Deliveries, effects: Effects, colour: Colour, dialect: Dialect
) -> None:
    run = deliveries.first()

    async with run.transaction() as tx:
        await execute(tx, effects.insert(1))
        run.target.result = {"paid": 1}
        if dialect == "postgres":
            assert (effects.numbers, state(deliveries, run)) == ([], "running")

    assert run.target.completed
    assert effects.numbers == [1]
    job = deliveries.onefold.get(run.target.id)
    assert job is not None
    assert (job.state, job.result) == ("completed", {"paid": 1})


async def test_a_failure_leaves_neither(
    deliveries: Deliveries, effects: Effects, colour: Colour
) -> None:
    run = deliveries.first()
    transaction = run.transaction()

    async def fail() -> None:
        async with transaction as tx:
            await execute(tx, effects.insert(1))
            raise Failed

    with pytest.raises(Failed):
        await fail()

    assert not run.target.completed
    assert (effects.numbers, state(deliveries, run)) == ([], "running")
    # And the run may go on, with another.
    with pytest.raises(UsageError, match="Make a new one"):
        await transaction.__aenter__()
    async with run.transaction() as tx:
        await execute(tx, effects.insert(2))
    assert effects.numbers == [2]


async def test_a_worker_that_lost_its_job_writes_nothing(
    deliveries: Deliveries, effects: Effects, colour: Colour, dialect: Dialect, store: Store
) -> None:
    zombie = deliveries.first()
    if dialect == "sqlite":
        deliveries.vanish()

    async def write() -> None:
        async with zombie.transaction() as tx:
            await execute(tx, effects.insert(1))
            if dialect == "postgres":
                deliveries.vanish()

    with pytest.raises(LeaseLost):
        await write()

    assert zombie.target.lost
    assert not zombie.target.completed
    assert effects.numbers == []


async def test_what_looks_lost_because_it_is_being_completed_is_not(
    deliveries: Deliveries,
) -> None:
    run = deliveries.first().target
    run.begin_completing()

    assert not run.mark_lost()
    run.end_completing(completed=False)
    assert run.mark_lost()
    assert run.lost


async def test_a_completed_run_has_no_more_effects(deliveries: Deliveries) -> None:
    run = deliveries.first()
    async with run.transaction():
        pass

    with pytest.raises(UsageError, match=r"completed by run\.transaction"):
        await run.step("mail", lambda: None)
    with pytest.raises(UsageError):
        await run.transaction().__aenter__()


async def test_a_result_that_cannot_be_stored_rolls_back(
    deliveries: Deliveries, effects: Effects, colour: Colour
) -> None:
    run = deliveries.first()

    async def write() -> None:
        async with run.transaction() as tx:
            await execute(tx, effects.insert(1))
            run.target.result = object()

    with pytest.raises(InvalidInput):
        await write()

    assert (effects.numbers, state(deliveries, run)) == ([], "running")


@pytest.mark.parametrize("dialect", ["sqlite"])
@pytest.mark.parametrize("colour", ["sync"])
@pytest.mark.filterwarnings("ignore::onefold.OutsideTransactionWarning")
async def test_a_plain_call_that_would_wait_for_its_own_transaction_says_so(
    deliveries: Deliveries,
) -> None:
    run = deliveries.first()

    with pytest.raises(WouldDeadlock):
        async with run.transaction():
            deliveries.onefold.enqueue("mail", {})


async def test_a_transaction_that_was_ended_by_hand_completes_nothing(
    deliveries: Deliveries, effects: Effects, colour: Colour
) -> None:
    run = deliveries.first()

    with pytest.raises((UsageError, psycopg.Error)):
        async with run.transaction() as tx:
            await execute(tx, "commit")

    assert not run.target.completed
    assert state(deliveries, run) == "running"


async def test_the_next_transaction_has_a_connection_as_new(
    deliveries: Deliveries, colour: Colour, dialect: Dialect
) -> None:
    for _ in range(3):
        run = deliveries.first()
        async with run.transaction() as tx:
            answer = tx.execute("select 1")
            cursor = await answer if colour == "async" else answer
            row = await cursor.fetchone() if colour == "async" else cursor.fetchone()
            assert row == (1,)
            if dialect == "postgres":
                tx.row_factory = dict_row


# --- a connection of the handler's own ------------------------------------------------------------


async def test_rows_on_a_connection_of_any_library_are_one_commit_with_the_completion(
    kind: Kind, store: Store, deliveries: Deliveries, effects: Effects
) -> None:
    connection = await kind.connect(store)
    run = deliveries.first()

    async with run.transaction(connection.raw):
        await connection.execute(effects.insert(1))

    assert run.target.completed
    assert (effects.numbers, state(deliveries, run)) == ([1], "completed")


@pytest.mark.parametrize("dialect", ["postgres"])
@pytest.mark.parametrize("colour", ["sync"])
async def test_a_transaction_that_is_open_already_is_not_joined(
    deliveries: Deliveries, store: Store
) -> None:
    run = deliveries.first()
    with psycopg.connect(store.url) as connection:
        connection.execute("select 1")

        with pytest.raises(WrongConnection, match="has an open transaction"):
            await run.transaction(connection).__aenter__()


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_an_engine_a_maker_of_sessions_and_a_pool_will_do(
    deliveries: Deliveries, store: Store, effects: Effects, colour: Colour
) -> None:
    for number, (target, close) in enumerate(await makers(store, colour)):
        run = deliveries.first()
        async with run.transaction(target) as tx:
            query = effects.insert(number)
            await execute(tx, clause(query) if hasattr(tx, "begin_nested") else query)
        if (ended := close()) is not None:
            await ended
        assert run.target.completed

    assert effects.numbers == list(range(3))


async def makers(store: Store, colour: Colour) -> list[tuple[Any, Any]]:
    if colour == "sync":
        engine = engine_of(store, "psycopg")
        pool = psycopg_pool.ConnectionPool(store.url, min_size=1, open=True)
        return [(engine, lambda: None), (sessionmaker(engine), engine.dispose), (pool, pool.close)]
    aengine = async_engine_of(store, "asyncpg")
    apool = await asyncpg.create_pool(store.url, min_size=0, max_size=1)
    assert apool is not None
    return [
        (aengine, lambda: None),
        (async_sessionmaker(aengine), aengine.dispose),
        (apool, apool.close),
    ]


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_another_database_is_refused_before_anything_is_done(
    deliveries: Deliveries, tmp_path: Any, colour: Colour
) -> None:
    run = deliveries.first()
    other = sqlite3.connect(tmp_path / "other.db")

    with pytest.raises(WrongConnection):
        async with run.transaction(other):
            pytest.fail("the commit would not cover the job")
    other.close()
    with pytest.raises(WrongConnection):
        async with run.transaction("app.db"):
            pytest.fail("no connection at all")


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_a_connection_of_the_other_colour_is_refused(
    deliveries: Deliveries, store: Store, colour: Colour
) -> None:
    run = deliveries.first()
    if colour == "async":
        with psycopg.connect(store.url) as sync, pytest.raises(WrongConnection, match="is sync"):
            await run.transaction(sync).__aenter__()
    else:
        connection = await psycopg.AsyncConnection.connect(store.url)
        with pytest.raises(WrongConnection, match="is async"):
            await run.transaction(connection).__aenter__()
        await connection.close()
