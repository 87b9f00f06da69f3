"""One object, used twice at once: refused, so that nobody settles or frees what is another's."""

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from onefold import Busy, UsageError
from onefold.claims import Replay
from onefold.effects import lock as lock_module
from tests.fixtures.colours import Clock, Coloured, Store
from tests.fixtures.patience import HANG, LOCK

MINUTE = timedelta(minutes=1)
TTL = timedelta(milliseconds=1)


async def test_a_once_is_reusable_after_its_body_and_not_inside(onefold: Coloured) -> None:
    shared = onefold.once("import", "sha")
    with pytest.raises(ZeroDivisionError):
        async with shared:
            raise ZeroDivisionError
    async with shared as claim:
        with pytest.raises(UsageError, match=r"new once\(\) for each use"):
            await shared.__aenter__()
        claim.result = "second"

    async with shared as again:
        assert again.result == "second"


async def test_a_skipped_entry_settles_nothing_and_is_reusable(onefold: Coloured) -> None:
    first = (await onefold.claim("import", "sha")).claim
    shared = onefold.once("import", "sha", busy="skip")
    async with shared as skipped:
        assert skipped is None
        await onefold.keys.release(first)
        with pytest.raises(UsageError):  # else the skipped one's end would settle this one's claim
            await shared.__aenter__()

    async with shared as claim:
        assert claim.won


async def test_of_many_threads_that_share_a_once_one_enters(store: Store) -> None:
    shared = store.open().once("import", "sha")
    threads = 8
    together, tried = threading.Barrier(threads), threading.Barrier(threads)

    def enter() -> str:
        together.wait(HANG)
        try:
            with shared as claim:
                assert claim is not None
                tried.wait(HANG)
                claim.result = "mine"
        except UsageError:
            tried.wait(HANG)
            return "refused"
        return "entered"

    with ThreadPoolExecutor(threads) as pool:
        ends = [future.result() for future in [pool.submit(enter) for _ in range(threads)]]

    assert sorted(ends) == ["entered"] + ["refused"] * (threads - 1)
    answer = store.open().claim("import", "sha")
    assert isinstance(answer, Replay)
    assert answer.result == "mine"


async def test_a_decorated_function_may_run_many_times_at_once(store: Store) -> None:
    both = threading.Barrier(2)

    @store.open().once("import")
    def work(number: int) -> int:
        both.wait(HANG)
        return number

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [1, 2])) == [1, 2]


async def test_a_lock_that_is_acquired_twice_is_refused(onefold: Coloured) -> None:
    lock = onefold.lock("nightly")
    await lock.acquire()
    fence = lock.fence

    with pytest.raises(UsageError, match=r"new lock\(\) for each use"):
        await lock.acquire()

    assert lock.fence == fence
    assert await lock.release() is True
    await lock.acquire()
    assert lock.fence > fence
    assert await lock.release() is True


async def test_a_lock_that_lapsed_unreleased_is_not_acquired_by_another_thread(
    store: Store, clock: Clock
) -> None:
    """Else the first one's release would free the second one's lock."""
    lock = store.open(clock=clock).lock("nightly", ttl=MINUTE)
    lock.acquire()
    clock.advance(MINUTE)

    with pytest.raises(UsageError, match="in use"):
        await asyncio.to_thread(lock.acquire)

    assert lock.release() is False
    await asyncio.to_thread(lock.acquire)
    assert lock.release() is True


async def test_a_lock_that_is_being_waited_for_is_in_use(store: Store, clock: Clock) -> None:
    asked = threading.Event()

    def watched() -> Any:
        asked.set()
        return clock.now

    holder = store.open(clock=clock).lock("nightly")
    holder.acquire()
    shared = store.open(clock=watched).lock("nightly", wait=LOCK)
    waiting = asyncio.create_task(asyncio.to_thread(shared.acquire))
    assert await asyncio.to_thread(asked.wait, HANG)

    with pytest.raises(UsageError, match="in use"):
        shared.acquire()
    assert shared.release() is False, "the one that waits is not disturbed"
    holder.release()

    assert await waiting is shared
    assert shared.release() is True


async def test_a_lock_that_was_not_got_is_reusable(onefold: Coloured, clock: Clock) -> None:
    await asyncio.create_task(onefold.lock("nightly", ttl=MINUTE).acquire())
    lock = onefold.lock("nightly")
    with pytest.raises(Busy):
        await lock.acquire()
    clock.advance(MINUTE)

    await lock.acquire()
    assert await lock.release() is True


async def test_a_lock_whose_lease_is_over_is_not_held_here(onefold: Coloured, clock: Clock) -> None:
    """Its name may be asked for again by another object, without a word of re-entrance."""
    lapsed = onefold.lock("nightly", ttl=TTL)
    await lapsed.acquire()
    while not lapsed.lost:
        pass
    clock.advance(TTL)

    async with onefold.lock("nightly") as lock:
        assert lock.fence > lapsed.fence


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_locks_that_are_left_to_their_ttl_leave_nothing_behind(onefold: Coloured) -> None:
    left: list[weakref.ref[Any]] = []
    for number in range(20):
        lock = onefold.lock(f"n{number}")
        await lock.acquire()
        left.append(weakref.ref(getattr(lock, "target", lock)))
        del lock
    lapsed = [onefold.lock(f"m{number}", ttl=TTL) for number in range(5)]
    for lock in lapsed:
        await lock.acquire()
    while not lapsed[-1].lost:
        pass
    gc.collect()

    async with onefold.lock("last"):
        assert len(lock_module._held.get()) == 1

    assert [ref for ref in left if ref() is not None] == []
