"""A queue that was held, and that no courier serves: a job that goes well opens it."""

import asyncio
from datetime import timedelta

from onefold import Onefold
from tests.worker.stage import ended, until, working

OVER = timedelta(0)


def _is_held(onefold: Onefold) -> bool:
    return any(queue.held_until is not None for queue in onefold.queues.find())


async def test_a_job_that_goes_well_opens_a_queue_whose_hold_is_over(onefold: Onefold) -> None:
    @onefold.job
    async def work() -> None: ...

    onefold.queues.hold("default", after=OVER, why="deferred")
    ids = [(await work.aenqueue()).id for _ in range(3)]
    async with working(onefold):
        await ended(onefold, *ids)
        await until(lambda: not _is_held(onefold))


async def test_a_job_that_fails_does_not(onefold: Onefold) -> None:
    tried = asyncio.Event()

    @onefold.job(max_attempts=1)
    async def fail() -> None:
        tried.set()
        raise ValueError("no")

    onefold.queues.hold("default", after=OVER, why="deferred")
    failed = await fail.aenqueue()
    async with working(onefold):
        await ended(onefold, failed.id)
    assert tried.is_set()
    assert _is_held(onefold)
