"""`lock`: a lease on a name with a fencing token."""

import asyncio
import itertools
import time
from collections.abc import Coroutine
from contextvars import Context
from datetime import timedelta
from typing import Any

import pytest

from onefold import Busy, InvalidInput, LeaseLost, Onefold, UsageError
from onefold.app.onefold import Within
from onefold.runtime import waits
from tests.fixtures.colours import Clock, Colour, Coloured, Store, refused_field
from tests.fixtures.patience import HANG, LOCK

MINUTE = timedelta(minutes=1)
TTL = timedelta(seconds=10)


async def test_f004_a_holder_repeats_itself_and_nobody_borrows_its_fence(
    onefold: Coloured,
) -> None:
    """The same word of the same holder counts once; its fence in other hands counts nothing."""
    from msgspec.structs import replace

    claim = (await onefold.claim("nightly", "k")).claim
    stranger = replace(claim, owner="01890000-0000-7000-8000-000000000000")

    await onefold.keys.settle(claim, "done")
    await onefold.keys.settle(claim, "done")

    with pytest.raises(LeaseLost):
        await onefold.keys.settle(stranger, "forged")
    assert (await onefold.claim("nightly", "k")).result == "done"


async def test_f006_a_renewed_lock_keeps_its_fence(onefold: Coloured, clock: Clock) -> None:
    async with onefold.lock("nightly", ttl=TTL) as lock:
        fence = lock.fence
        clock.advance(TTL / 2)

        await lock.renew()

        assert lock.fence == fence
        clock.advance(TTL - timedelta(microseconds=1))
        with pytest.raises(Busy) as caught:
            await elsewhere(onefold.lock("nightly").acquire())
        assert caught.value.retry_after == timedelta(microseconds=1)


async def elsewhere(asking: Coroutine[Any, Any, Any]) -> Any:
    """As another task would ask: one that does not hold what we hold."""
    return await asyncio.create_task(asking, context=Context())


async def test_f007_f008_a_lock_whose_lease_ended_is_neither_revived_nor_released(
    onefold: Coloured, clock: Clock
) -> None:
    late, current = (onefold.lock("nightly", ttl=TTL) for _ in range(2))
    await late.acquire()
    fence = late.fence
    clock.advance(TTL)

    with pytest.raises(LeaseLost) as caught:
        await late.renew()

    assert caught.value.fence == fence
    assert late.lost
    await elsewhere(current.acquire())
    assert current.fence > fence
    assert await late.release() is False
    with pytest.raises(Busy):
        await elsewhere(onefold.lock("nightly").acquire())
    assert await current.release() is True


async def test_f012_the_holder_trusts_its_lease_less_a_margin_from_before_it_asked(
    store: Store, colour: Colour
) -> None:
    """The holder's clock is its own monotonic one; the database's may say what it likes."""
    astray = Clock()
    onefold = Coloured(store.open(clock=astray), colour)
    before = time.monotonic()

    async with onefold.lock("nightly", ttl=TTL) as lock:
        after = time.monotonic()
        inner = getattr(lock, "target", lock)
        trusted = inner._trusted_until

        assert before <= trusted - 0.9 * TTL.total_seconds() <= after
        astray.advance(-timedelta(days=365))
        assert not lock.lost
        lock.check()


async def test_f013_a_holder_whose_margin_is_gone_stops_before_the_effect(
    onefold: Coloured,
) -> None:
    async with onefold.lock("nightly", ttl=timedelta(milliseconds=20)) as lock:
        deadline = time.monotonic() + HANG
        while not lock.lost:
            assert time.monotonic() < deadline

        with pytest.raises(LeaseLost) as caught:
            lock.check()

        assert caught.value.fence == lock.fence


async def test_f013_a_renewed_lock_is_trusted_again(onefold: Coloured) -> None:
    async with onefold.lock("nightly", ttl=MINUTE) as lock:
        getattr(lock, "target", lock)._trusted_until = 0.0
        assert lock.lost

        await lock.renew()  # by the database's clock the lease has not ended

        assert not lock.lost


async def test_a_lock_that_is_not_held_or_whose_body_has_failed_is_lost(onefold: Coloured) -> None:
    lock = onefold.lock("nightly")
    with pytest.raises(ZeroDivisionError):
        async with lock:
            raise ZeroDivisionError

    async with onefold.lock("nightly"):
        pass
    assert lock.lost
    with pytest.raises(LeaseLost):
        lock.check()
    with pytest.raises(LeaseLost):
        await lock.renew()
    assert await lock.release() is False


NAMES = [
    "nightly",
    "nightly*",
    "nightly?",
    "night%",
    "[a-z]{1}",
    "a,b",
    "näch­tlich",
    "\U0001f512",
    " nightly",
    "NIGHTLY",
    "line\nbreak",
    "x" * 512,
    "x" * 513,
    "x" * 100_000,
    "ü" * 400,
]


async def test_f016_any_text_and_nothing_else_names_a_lock_of_its_own(onefold: Coloured) -> None:
    held = [onefold.lock(name) for name in NAMES]
    for lock in held:
        await lock.acquire()

    for name in NAMES:
        with pytest.raises(Busy):
            await elsewhere(onefold.lock(name).acquire())
    for lock in held:
        assert await lock.release()
    for wrong in ("", "nul\x00", "\ud800", 7, None):
        with pytest.raises(InvalidInput):
            await onefold.lock(wrong).acquire()


async def test_f017_a_lock_asked_for_again_by_its_holder_is_an_error_not_a_wait(
    onefold: Coloured,
) -> None:
    async with onefold.lock("nightly") as lock:
        with pytest.raises(UsageError, match="already held here"):
            await onefold.lock("nightly", wait=timedelta(hours=1)).acquire()
        assert not lock.lost

    other, theirs = onefold.lock("weekly"), onefold.tenant("acme").lock("nightly")
    async with onefold.lock("nightly"), other, theirs:
        pass


async def test_f018_the_wait_is_bounded(onefold: Coloured) -> None:
    async with onefold.lock("nightly"):
        started = time.monotonic()
        with pytest.raises(Busy):
            await elsewhere(onefold.lock("nightly", wait=timedelta(milliseconds=60)).acquire())
        waited = time.monotonic() - started

    assert waited >= 0.06


async def test_f018_waiters_do_not_march_in_step() -> None:
    """Pauses grow, differ from waiter to waiter, and stay below 0.375 seconds."""
    assert [*waits(None), *waits(timedelta(0))] == []
    walks = [list(itertools.islice(waits(timedelta(hours=1)), 12)) for _ in range(20)]

    assert len({tuple(walk) for walk in walks}) == 20
    assert all(0 < pause <= 0.375 for walk in walks for pause in walk)
    assert max(walk[0] for walk in walks) < 0.01


async def test_f019_an_operator_takes_a_lock_and_fences_its_holder_off(onefold: Coloured) -> None:
    lock = onefold.lock("nightly", ttl=TTL)
    await lock.acquire()
    fence = lock.fence

    assert await onefold.keys.unlock("nightly")

    with pytest.raises(LeaseLost):
        await lock.renew()
    assert await lock.release() is False
    async with onefold.lock("nightly") as successor:
        assert successor.fence > fence
    assert not await onefold.keys.unlock("nightly")
    async with onefold.lock("x" * 600):
        assert await onefold.keys.unlock("x" * 600)


def test_f020_the_lock_says_that_holders_may_overlap_and_names_what_does_not() -> None:
    documented = " ".join((Onefold.lock.__doc__ or "").split())

    assert "efficiency lock" in documented
    assert "may overlap" in documented
    assert "within(connection).guard(lock)" in documented
    assert "keep the hold until you commit" in (Within.guard.__doc__ or "")


async def test_bad_options_are_refused_by_name(onefold: Coloured) -> None:
    bad: list[tuple[str, dict[str, Any]]] = [
        ("ttl", {"ttl": timedelta(0)}),
        ("ttl", {"ttl": 30}),
        ("wait", {"wait": timedelta(seconds=-1)}),
    ]
    for field, options in bad:
        assert await refused_field(onefold.lock, "nightly", **options) == field, options


async def test_f017_a_task_started_by_the_holder_is_somebody_else(store: Store) -> None:
    """It inherits the holder's context, but waits for the lock like anybody, and then gets it."""
    onefold = store.open()

    async def successor() -> int:
        async with onefold.lock("nightly", wait=LOCK) as lock:
            return lock.fence

    async with onefold.lock("nightly") as lock:
        started = asyncio.create_task(successor())
        with pytest.raises(Busy):
            await asyncio.to_thread(onefold.lock("nightly").acquire)
        fence = lock.fence

    assert await started > fence


async def test_f021_a_lock_derives_a_key_for_those_who_know_no_fences(onefold: Coloured) -> None:
    async with onefold.lock("nightly") as lock:
        assert lock.derived("report") == lock.derived("report")
        assert lock.derived("report") != lock.derived("invoice")
