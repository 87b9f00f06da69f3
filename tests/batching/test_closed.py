"""Closing while calls wait on PostgreSQL: they get their answer, or are told that it is closed."""

import asyncio
from typing import Any

from onefold import Closed
from tests.batching.crowd import Crowd, enqueue, goes_on, holding

SIZE = 8


async def test_nobody_waits_for_an_object_that_is_closed(postgres_crowd: Crowd) -> None:
    crowd = postgres_crowd
    wanting = [enqueue(unique_key="held")] * 2
    calls = [enqueue(payload=n) for n in range(SIZE)]

    with holding(crowd.place, "held") as connection:

        async def close(callers: list[Any]) -> None:
            assert any(map(goes_on, callers[:2]))
            if crowd.onefold.colour == "async":
                await crowd.onefold.target.aclose()
            else:
                await asyncio.to_thread(crowd.onefold.target.close)
            connection.execute("rollback")

        answers = await crowd.at_once(*wanting, *calls, after=close)

    told = [answer for answer in answers if answer.error is None]
    assert {type(answer.error) for answer in answers} <= {type(None), Closed}
    assert crowd.place.rows("select count(*) from {job}") == [
        (len({answer.get().id for answer in told}),)
    ]
