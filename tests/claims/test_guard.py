"""`guard`: a lock or a claim checked inside the transaction that writes."""

import asyncio
from datetime import timedelta

import pytest

from onefold import Busy, LeaseLost
from tests.fixtures.colours import Clock, Coloured, Store, refused_field
from tests.fixtures.connection import Kind
from tests.fixtures.connections import Effects, alongside
from tests.fixtures.patience import HANG

TTL = timedelta(seconds=10)


async def test_f002_f003_who_slept_past_its_lease_is_refused_before_and_after_its_successor_wrote(
    kind: Kind, store: Store, onefold: Coloured, clock: Clock, effects: Effects
) -> None:
    """A resource that remembers the highest fence it has seen would still accept it before."""
    sleeper, successor = (onefold.lock("ledger", ttl=TTL) for _ in range(2))
    await sleeper.acquire()
    stale = getattr(sleeper, "target", sleeper).claim
    clock.advance(TTL)
    await sleeper.release()
    await successor.acquire()
    connection = await kind.connect(store)

    for number in (34, 35):
        await connection.begin()
        with pytest.raises(LeaseLost) as caught:
            await onefold.within(connection.raw).guard(stale)
        await connection.rollback()
        assert caught.value.fence == stale.fence

        await connection.begin()
        await onefold.within(connection.raw).guard(getattr(successor, "target", successor))
        await connection.execute(effects.insert(number))
        await connection.commit()

    assert effects.numbers == [34, 35]


async def test_f005_nobody_takes_the_lock_between_the_check_and_the_commit(
    kind: Kind, store: Store, onefold: Coloured, clock: Clock, effects: Effects
) -> None:
    """The successor waits for the transaction (or gives up), so check and write are one step."""
    holder = onefold.lock("ledger", ttl=TTL)
    await holder.acquire()
    guarded = getattr(holder, "target", holder)
    clock.advance(TTL)
    connection = await kind.connect(store)
    await connection.begin()
    await onefold.within(connection.raw).guard(guarded)
    rival = Coloured(store.open(clock=clock), kind.colour)

    async def take() -> int:
        async with rival.lock("ledger") as lock:
            fence: int = lock.fence
            assert effects.numbers == [33], "whoever has the lock sees what its predecessor wrote"
            return fence

    successor = asyncio.create_task(alongside(kind.colour, take))
    await connection.execute(effects.insert(33))
    await connection.commit()

    assert await asyncio.wait_for(successor, HANG) > guarded.fence


async def test_f004_a_guard_may_be_asked_twice(kind: Kind, store: Store, onefold: Coloured) -> None:
    lock = onefold.lock("ledger")
    await lock.acquire()
    connection = await kind.connect(store)
    await connection.begin()
    within = onefold.within(connection.raw)

    await within.guard(getattr(lock, "target", lock))
    await within.guard(getattr(lock, "target", lock).claim)
    for holder in (None, "nightly", 5):
        assert await refused_field(within.guard, holder) == "holder", holder

    await connection.commit()
    assert await lock.release()


async def test_a_once_is_guarded_too(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await kind.connect(store)
    async with onefold.once("import", "sha") as claim:
        await connection.begin()
        await onefold.within(connection.raw).guard(claim)
        await connection.execute(effects.insert(1))
        await connection.commit()

    async with onefold.once("import", "sha") as replayed:
        await connection.begin()
        with pytest.raises(LeaseLost):
            await onefold.within(connection.raw).guard(replayed)
        await connection.rollback()
    assert effects.numbers == [1]


async def test_the_lease_still_answers_for_a_guarded_lock(
    kind: Kind, store: Store, onefold: Coloured, clock: Clock
) -> None:
    """A guarded transaction keeps nobody waiting who would be told Busy anyway."""
    lock = onefold.lock("ledger")
    await lock.acquire()
    connection = await kind.connect(store)
    await connection.begin()
    await onefold.within(connection.raw).guard(getattr(lock, "target", lock))
    if store.dialect == "sqlite":
        await connection.commit()  # the file has one writer, and that was us

    with pytest.raises(Busy):
        await asyncio.to_thread(store.open(clock=clock).lock("ledger").acquire)

    await connection.rollback()
    assert await lock.release()
