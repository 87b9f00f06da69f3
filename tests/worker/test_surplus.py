"""Jobs that were taken in advance, and that would wait for long, go back to other workers."""

import asyncio

from onefold import NewJob, Onefold
from tests.worker.stage import until, working

QUICK_JOBS = 600
SLOW_JOBS = 100
CONCURRENCY = 5


async def test_a_worker_that_meets_slow_jobs_holds_only_those_that_run(onefold: Onefold) -> None:
    may_end = asyncio.Event()

    @onefold.job(kind="quick")
    async def quick() -> None:
        await asyncio.sleep(0)

    @onefold.job(kind="slow")
    async def slow() -> None:
        await may_end.wait()

    kinds = ["quick"] * QUICK_JOBS + ["slow"] * SLOW_JOBS

    await onefold.aenqueue_many([NewJob(kind) for kind in kinds])
    async with working(onefold, concurrency=CONCURRENCY, chores=False):

        async def only_running() -> bool:
            held = await onefold.afind(state="running", limit=len(kinds))
            # On a slow machine quick jobs go back, too, and wait behind the slow ones.
            return [job.kind for job in held] == ["slow"] * CONCURRENCY

        await until(only_running)
        may_end.set()

        async def all_ended() -> bool:
            jobs = await onefold.afind(limit=len(kinds))
            return {(job.state, job.attempt) for job in jobs} == {("completed", 1)}

        await until(all_ended)
