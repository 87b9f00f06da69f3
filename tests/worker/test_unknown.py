"""Calls that must not be made twice, in jobs that a worker runs until they have ended."""

import asyncio
from datetime import timedelta
from typing import Any

from onefold import Done, Fixed, Job, Onefold, Run
from tests.worker.stage import ended, get_job, working

AT_ONCE = Fixed(timedelta(0))


class Bank:
    """Pays, and loses its answer; may be asked, and cannot tell at first."""

    def __init__(self, *, silent: int = 0) -> None:
        self.paid = 0
        self.asked = 0
        self._silent = silent

    def pay(self) -> str:
        self.paid += 1
        raise ConnectionResetError("the answer is lost")

    async def hang(self) -> str:
        self.paid += 1
        await asyncio.Event().wait()
        return "never"

    def find(self, key: str) -> Done | None:
        self.asked += 1
        return None if self.asked <= self._silent else Done("receipt")


async def _ended(onefold: Onefold, work: Any) -> Job:
    enqueued = await work.aenqueue()
    async with working(onefold):
        await ended(onefold, enqueued.id)
    return await get_job(onefold, enqueued.id)


async def test_without_verify_the_job_is_parked_and_the_call_is_made_once(
    onefold: Onefold,
) -> None:
    bank = Bank()

    @onefold.job(backoff=AT_ONCE)
    def work(run: Run) -> None:
        run.using(unsafe=True).step("pay", bank.pay)

    job = await _ended(onefold, work)

    assert (job.state, job.reason, job.attempt, bank.paid) == ("dead", "unknown", 1, 1)
    assert job.error is not None
    assert job.error["causes"][0]["message"] == "the answer is lost"


async def test_with_verify_attempts_go_on_until_it_can_tell(onefold: Onefold) -> None:
    bank = Bank(silent=2)

    @onefold.job(backoff=AT_ONCE, store_result=True)
    def work(run: Run) -> str:
        return run.using(unsafe=True, verify=bank.find).step("pay", bank.pay)

    job = await _ended(onefold, work)

    assert (job.state, job.result, job.attempt) == ("completed", "receipt", 3)
    assert (bank.paid, bank.asked) == (1, 3)


async def test_a_job_that_times_out_in_the_call_asks_in_its_next_attempt(onefold: Onefold) -> None:
    bank = Bank()

    @onefold.job(backoff=AT_ONCE, max_attempts=100, timeout=timedelta(seconds=1), store_result=True)
    async def work(run: Run) -> str:
        return await run.using(unsafe=True, verify=bank.find).astep("pay", bank.hang)

    job = await _ended(onefold, work)

    assert (job.state, job.result) == ("completed", "receipt")
    assert bank.paid == 1
