"""What is aiosqlite's alone: a connection in a thread of its own, shared by the tasks of a loop."""

import asyncio
from datetime import timedelta

import aiosqlite
import pytest

from onefold import AlreadyEnqueued, DatabaseBusy, NewJob
from tests.fixtures.colours import Colour, Coloured, Store
from tests.fixtures.connections import Effects

SHORT = timedelta(milliseconds=200)


@pytest.fixture
def dialect() -> str:
    return "sqlite"


async def test_calls_of_several_tasks_do_not_come_between_each_other(
    store: Store, effects: Effects
) -> None:
    """One connection, one transaction, and a call that fails among those that do not."""
    onefold = store.open()
    await onefold.aenqueue("email", unique_key="held")
    async with aiosqlite.connect(store.path) as raw:
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
    async with aiosqlite.connect(store.path) as raw:
        jobs = [NewJob("email", idempotency_key=f"{number}") for number in range(50)]
        call = asyncio.ensure_future(onefold.within(raw).aenqueue_many(jobs))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await raw.commit()

    assert (len(effects.jobs), len(effects.claims)) == (50, 50)


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_plain_call_beside_ones_own_open_transaction_is_told_of_within_in_the_end(
    store: Store, colour: Colour
) -> None:
    """The thread does not tell whose transaction it is: another task may well wait for it."""
    onefold = store.open(busy_timeout=SHORT)
    async with aiosqlite.connect(store.path) as raw:
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
        async with aiosqlite.connect(store.path) as raw:
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
