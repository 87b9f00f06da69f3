"""A call that must not be made twice, in a job that a worker runs until it has ended."""

import asyncio
from datetime import timedelta

from onefold import Done, Fixed, Onefold, Run
from tests.worker.stage import ended, get_job, working


async def test_a_job_that_times_out_in_the_call_asks_in_its_next_attempt(onefold: Onefold) -> None:
    paid: list[str] = []

    async def pay() -> str:
        paid.append("once")
        await asyncio.Event().wait()
        return "never"

    def find(_key: str) -> Done:
        return Done("receipt")

    @onefold.job(
        backoff=Fixed(timedelta(0)),
        max_attempts=100,
        timeout=timedelta(seconds=1),
        store_result=True,
    )
    async def work(run: Run) -> str:
        return await run.using(unsafe=True, verify=find).astep("pay", pay)

    enqueued = await work.aenqueue()
    async with working(onefold):
        await ended(onefold, enqueued.id)
    job = await get_job(onefold, enqueued.id)

    assert (job.state, job.result, paid) == ("completed", "receipt", ["once"])
