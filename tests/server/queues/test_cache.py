"""Settings of queues from memory: others' changes within a second, one's own at once."""

import asyncio

import pytest

from onefold import Onefold
from onefold.errors import QueueNotFound
from onefold.model.queue import QueueSettings
from onefold.server.queue_cache import QueueCache
from tests.fixtures.colours import Store


class Time:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def saying(attempts: int) -> QueueSettings:
    return QueueSettings(max_attempts=attempts)


async def opened(store: Store) -> tuple[Onefold, QueueCache, Time]:
    onefold, time = store.open(), Time()
    await onefold.queues.asave("q", saying(1))
    return onefold, QueueCache(onefold, clock=time), time


async def test_what_others_change_is_seen_within_a_second_and_ones_own_at_once(
    store: Store,
) -> None:
    onefold, cache, time = await opened(store)
    assert (await cache.get("", "q")).max_attempts == 1
    await onefold.queues.asave("q", saying(2))

    time.now = 0.9
    assert (await cache.get("", "q")).max_attempts == 1
    time.now = 1.0
    assert (await cache.get("", "q")).max_attempts == 2

    await onefold.queues.asave("q", saying(3))
    cache.forget("", "q")
    assert (await cache.get("", "q")).max_attempts == 3


async def test_an_answer_that_a_change_overtook_is_not_kept(store: Store) -> None:
    onefold, cache, _ = await opened(store)
    asked = asyncio.create_task(cache.get("", "q"))
    await asyncio.sleep(0)
    await onefold.queues.asave("q", saying(2))
    cache.forget("", "q")
    await asked

    assert (await cache.get("", "q")).max_attempts == 2


async def test_that_there_is_no_queue_is_asked_anew_each_time(store: Store) -> None:
    onefold, cache, _ = await opened(store)
    with pytest.raises(QueueNotFound):
        await cache.get("", "new")

    await onefold.queues.asave("new", saying(3))

    assert (await cache.get("", "new")).max_attempts == 3


async def test_who_asks_together_asks_once_and_survives_who_goes_away(store: Store) -> None:
    _, cache, _ = await opened(store)
    first, second = (asyncio.create_task(cache.get("", "q")) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()

    assert (await second).max_attempts == 1


async def test_a_question_that_hangs_does_not_take_those_along_who_come_later(
    store: Store,
) -> None:
    """Its connection may be dead, which takes a network many minutes to tell."""
    _, cache, time = await opened(store)
    first = asyncio.create_task(cache.get("", "q"))
    await asyncio.sleep(0)
    hanging = [task for task in asyncio.all_tasks() if "_read" in str(task.get_coro())]
    time.now = 1.0
    second = asyncio.create_task(cache.get("", "q"))
    await asyncio.sleep(0)
    for task in hanging:
        task.cancel()

    assert (await second).max_attempts == 1
    with pytest.raises(asyncio.CancelledError):
        await first
