"""A job that somebody has locked in an open transaction: the others must not pay for it."""

import asyncio

from onefold import Job, Onefold
from tests.fixtures.place import Place
from tests.worker.stage import QUICK, ended, opened, perform, until, working


def test_one_locked_job_costs_nobody_else_a_lease(postgres_place: Place) -> None:
    place = postgres_place
    with opened(place) as onefold, place.connection() as other:
        may_end = asyncio.Event()

        @onefold.job
        async def slow() -> None:
            await may_end.wait()

        async def play() -> None:
            locked, free = (await slow.aenqueue()).id, (await slow.aenqueue()).id
            async with working(onefold, lease=QUICK, chores=False):

                async def both_run() -> bool:
                    return [(await _get(onefold, i)).state for i in (locked, free)] == [
                        "running",
                        "running",
                    ]

                await until(both_run)
                other.execute(
                    f"begin; select from {place.schema}.job where id = '{locked}' for update"
                )
                first = (await _get(onefold, free)).lease_until

                async def extended_twice() -> bool:
                    now = (await _get(onefold, free)).lease_until
                    return first is not None and now is not None and now > first + QUICK

                await until(extended_twice)
                other.execute("rollback")
                may_end.set()
                await ended(onefold, locked, free)
            assert [(await _get(onefold, i)).fence for i in (locked, free)] == [1, 1]

        perform(play, onefold)


async def _get(onefold: Onefold, job_id: str) -> Job:
    job = await onefold.aget(job_id)
    assert job is not None
    return job
