"""Who gets a worker's places: no queue waits for as long as another has something to do."""

import asyncio
from datetime import timedelta

import pytest

from onefold import Limit, Onefold, Retry, Run
from onefold.model.delivery import TakeOrder
from onefold.worker.queue_monitor import QueueMonitor
from onefold.worker.settings import worker_settings
from tests.worker.stage import Slow, ended, until, working

NEVER = timedelta(hours=1)


class TestBesideABacklog:
    @pytest.mark.parametrize(
        ("busy", "limited", "places"),
        [(["default"], ["rare"], 2), (["one", "two"], ["one", "two", "rare"], 1)],
        ids=["one limited queue", "several"],
    )
    async def test_jobs_of_limited_queues_run_in_turn(
        self, onefold: Onefold, busy: list[str], limited: list[str], places: int
    ) -> None:
        for queue in limited:
            onefold.queues.declare(queue, limit=Limit(concurrency=100))
        ran = asyncio.Event()
        for queue in busy:
            _never_done(onefold, until_=ran, queue=queue)

        @onefold.job(queue="rare")
        async def rare() -> None:
            ran.set()

        async with working(onefold, queues=[*busy, "rare"], concurrency=places):
            await ended(onefold, (await rare.aenqueue()).id)

    async def test_jobs_with_a_group_run(self, onefold: Onefold) -> None:
        ran = asyncio.Event()
        _never_done(onefold, until_=ran)

        @onefold.job
        async def rare() -> None:
            ran.set()

        async with working(onefold, concurrency=2):
            enqueued = await rare.using(group_key="a").aenqueue()
            await ended(onefold, enqueued.id)


class TestAWorkersOwnLimits:
    async def test_a_queue_that_has_all_it_may_have_here_keeps_no_other_waiting(
        self, onefold: Onefold
    ) -> None:
        slow = Slow(onefold)

        @onefold.job(queue="email")
        async def quick() -> None: ...

        for _ in range(3):
            await slow.job.aenqueue()
        async with working(onefold, queues={"default": 1, "email": None}):
            await until(slow.begun.is_set)
            later = quick.using(delay=timedelta(milliseconds=50))
            await ended(onefold, (await quick.aenqueue()).id, (await later.aenqueue()).id)
            assert not slow.may_end.is_set()
            slow.may_end.set()


class TestComingBack:
    async def test_a_retry_is_run_when_it_is_due_though_nobody_rings(
        self, onefold: Onefold
    ) -> None:
        @onefold.job
        async def second_time_lucky(run: Run) -> None:
            if run.attempt == 1:
                raise Retry(timedelta(milliseconds=50))

        async with working(onefold, poll=NEVER, chores=False):
            await ended(onefold, (await second_time_lucky.aenqueue()).id)

    async def test_a_worker_may_look_in_vain_for_as_long_as_it_likes(
        self, onefold: Onefold
    ) -> None:
        await onefold.amigrate()
        notifier = await onefold.context.database.anotifier()
        monitor = QueueMonitor(onefold.context, worker_settings({}), notifier, asyncio.Event())
        order = TakeOrder({"default": 1}, 1, "somebody", 1)
        for _ in range(2_000):
            monitor.taken(order, [])


def _never_done(onefold: Onefold, *, until_: asyncio.Event, queue: str = "default") -> None:
    """More jobs than a worker has places for, until something has happened."""

    @onefold.job(kind=f"endless {queue}", queue=queue)
    async def endless() -> None:
        if not until_.is_set():
            await endless.aenqueue()

    for _ in range(20):
        endless.enqueue()
