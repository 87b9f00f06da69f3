"""What is aiosqlite's alone: a connection in a thread of its own, shared by the tasks of a loop."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiosqlite
import pytest

from onefold import (
    AlreadyEnqueued,
    DatabaseBusy,
    NewJob,
    NoTransaction,
    Onefold,
    SerializationConflict,
    WrongConnection,
)
from tests.fixtures.colours import Colour, Coloured, Store
from tests.fixtures.connections import Effects

SHORT = timedelta(milliseconds=200)


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@asynccontextmanager
async def connected(store: Store, **settings: Any) -> AsyncGenerator[aiosqlite.Connection]:
    async with aiosqlite.connect(store.path, **settings) as connection:
        yield connection


async def test_autocommit_without_a_transaction_is_refused(store: Store, effects: Effects) -> None:
    onefold = store.open()
    async with connected(store, isolation_level=None) as raw:
        with pytest.raises(NoTransaction, match=r"aiosqlite\.core\.Connection has no open"):
            onefold.within(raw)

        await raw.execute("begin")
        within = onefold.within(raw)
        await within.aenqueue("email")
        await raw.execute("commit")

        with pytest.raises(NoTransaction):
            await within.aenqueue("email")
    assert len(effects.jobs) == 1


async def test_a_connection_that_is_not_open_is_refused(store: Store) -> None:
    onefold = store.open()
    async with connected(store) as raw:
        within = onefold.within(raw)

    with pytest.raises(WrongConnection, match="is not open"):
        onefold.within(raw)
    with pytest.raises(WrongConnection, match="is not open"):
        await within.aenqueue("email")
    with pytest.raises(WrongConnection, match="is not open"):
        onefold.within(aiosqlite.connect(store.path))


async def test_a_sync_call_and_another_file_are_refused(store: Store, tmp_path: Any) -> None:
    onefold = store.open()
    async with connected(store) as raw:
        with pytest.raises(WrongConnection, match="with the leading a"):
            onefold.within(raw).enqueue("email")
    async with aiosqlite.connect(tmp_path / "other.db") as other:
        with pytest.raises(WrongConnection, match=r"aiosqlite.* would not cover the job"):
            await onefold.within(other).aenqueue("email")


async def test_calls_of_several_tasks_do_not_come_between_each_other(
    store: Store, effects: Effects
) -> None:
    """One connection, one transaction, and a call that fails among those that do not."""
    onefold = store.open()
    await onefold.aenqueue("email", unique_key="held")
    async with connected(store) as raw:
        within = onefold.within(raw)

        async def fails() -> None:
            batch = [NewJob("email", unique_key="never"), NewJob("email", unique_key="held")]
            with pytest.raises(AlreadyEnqueued):
                await within.aenqueue_many(batch, on_duplicate="raise")

        async def enqueues(number: int) -> None:
            await within.aenqueue("email", unique_key=f"{number}", idempotency_key=f"{number}")

        await asyncio.gather(enqueues(1), fails(), enqueues(2), fails(), enqueues(3))
        await raw.commit()

    assert [key for _, key in effects.jobs] == ["1", "2", "3", "held"]
    assert [key for key, _ in effects.claims] == ["1", "2", "3"]


async def test_a_call_that_is_cancelled_is_done_or_not_but_never_half(
    store: Store, effects: Effects
) -> None:
    """It is on its way to the thread; the caller's commit comes after it."""
    onefold = store.open()
    async with connected(store) as raw:
        jobs = [NewJob("email", idempotency_key=f"{number}") for number in range(50)]
        call = asyncio.ensure_future(onefold.within(raw).aenqueue_many(jobs))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await raw.commit()

    assert (len(effects.jobs), len(effects.claims)) == (50, 50)


async def test_a_transaction_that_began_by_reading_is_refused_after_another_commit(
    store: Store,
) -> None:
    onefold = store.open()
    async with connected(store, isolation_level=None) as raw:
        await raw.execute("begin")
        await raw.execute_fetchall("select count(*) from onefold_job")
        await store.open().aenqueue("email", unique_key="other")

        with pytest.raises(SerializationConflict, match="began by reading"):
            await onefold.within(raw).aenqueue("email", unique_key="k")

        await raw.execute("rollback")


async def test_a_file_that_another_transaction_has_is_busy_after_the_callers_own_timeout(
    store: Store,
) -> None:
    onefold = store.open()
    async with connected(store) as holder, connected(store, timeout=0.05) as raw:
        await holder.execute("begin immediate")

        with pytest.raises(DatabaseBusy, match="write lock"):
            await onefold.within(raw).aenqueue("email")

        await holder.rollback()
        assert (await onefold.within(raw).aenqueue("email")).inserted


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_fresh_file_is_migrated_in_the_callers_transaction(
    sqlite_url: str, end: str
) -> None:
    async with aiosqlite.connect(sqlite_url.removeprefix("sqlite:///")) as raw:
        await raw.execute("create table invoice (number integer)")
        await raw.commit()
        await raw.execute("insert into invoice values (7)")
        with Onefold(sqlite_url, busy_timeout=SHORT) as onefold:
            first = await onefold.within(raw).aenqueue("email", unique_key="k")
            await getattr(raw, end)()

            again = await onefold.within(raw).aenqueue("email", unique_key="k")
            await raw.commit()

            assert (again.id == first.id) == (end == "commit")
            assert onefold.get(again.id) is not None


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_plain_call_beside_ones_own_open_transaction_is_told_of_within_in_the_end(
    store: Store, colour: Colour
) -> None:
    """The thread does not tell whose transaction it is: another task may well wait for it."""
    onefold = store.open(busy_timeout=SHORT)
    async with connected(store) as raw:
        await onefold.within(raw).aenqueue("email", unique_key="k")

        with pytest.raises(DatabaseBusy, match=r"use within\(connection\)"):
            await Coloured(onefold, colour).enqueue("email", unique_key="k")

        await raw.commit()
    assert onefold.enqueue("email", unique_key="k").duplicate


async def test_an_awaited_call_waits_for_the_transaction_of_another_task(store: Store) -> None:
    """That task goes on meanwhile, and commits."""
    onefold = store.open()
    asked, begun = asyncio.Event(), asyncio.Event()

    async def first() -> str:
        async with connected(store) as raw:
            job = await onefold.within(raw).aenqueue("email", unique_key="k")
            begun.set()
            await asked.wait()
            await raw.commit()
            return job.id

    async def second() -> str:
        await begun.wait()
        call = asyncio.create_task(onefold.aenqueue("email", unique_key="k"))
        await asyncio.sleep(0)
        asked.set()
        return (await call).id

    one, two = await asyncio.gather(first(), second())

    assert one == two
