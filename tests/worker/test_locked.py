"""A job that somebody has locked in an open transaction: the others must not pay for it."""

import asyncio

from tests.fixtures.place import Place
from tests.worker.stage import BEAT, HELD, ended, get_job, perform, until, working


def test_one_locked_job_costs_nobody_else_a_lease(postgres_place: Place) -> None:
    place = postgres_place
    with place.open() as onefold, place.connection() as other:
        may_end = asyncio.Event()

        @onefold.job
        async def slow() -> None:
            await may_end.wait()

        async def play() -> None:
            locked, free = (await slow.aenqueue()).id, (await slow.aenqueue()).id
            async with working(onefold, chores=False, **HELD):

                async def both_run() -> bool:
                    return [(await get_job(onefold, i)).state for i in (locked, free)] == [
                        "running",
                        "running",
                    ]

                await until(both_run)
                other.execute(
                    f"begin; select from {place.schema}.job where id = '{locked}' for update"
                )
                first = (await get_job(onefold, free)).lease_until

                async def extended_twice() -> bool:
                    now = (await get_job(onefold, free)).lease_until
                    return first is not None and now is not None and now > first + 3 * BEAT

                await until(extended_twice)
                other.execute("rollback")
                may_end.set()
                await ended(onefold, locked, free)
            assert [(await get_job(onefold, i)).fence for i in (locked, free)] == [1, 1]

        perform(play, onefold)
