"""A queue that was held, and that no courier serves: a job that goes well opens it."""

from datetime import timedelta

from onefold import Onefold
from tests.worker.stage import ended, until, working

OVER = timedelta(0)


def _is_held(onefold: Onefold) -> bool:
    return any(queue.held_until is not None for queue in onefold.queues.find())


async def test_a_job_that_goes_well_opens_a_queue_whose_hold_is_over_and_no_other_does(
    onefold: Onefold,
) -> None:
    @onefold.job(max_attempts=1)
    async def work(*, fails: bool) -> None:
        if fails:
            raise ValueError("no")

    onefold.queues.hold("default", after=OVER, why="deferred")
    failed = await work.aenqueue(fails=True)
    async with working(onefold):
        await ended(onefold, failed.id)
        assert _is_held(onefold)
        ids = [(await work.aenqueue(fails=False)).id for _ in range(3)]
        await ended(onefold, *ids)
        await until(lambda: not _is_held(onefold))
