"""A key that somebody holds stalls nobody but those who want it. On SQLite the file is held."""

from typing import Any

import pytest

from onefold import DatabaseBusy
from onefold.databases.batching import HELD_KEYS
from onefold.databases.postgres.pool import CONNECTIONS
from tests.batching.crowd import Crowd, ended, enqueue, goes_on, holding, settle
from tests.race.crew import values

SIZE = 6


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_neighbours_are_answered_while_a_key_is_held(postgres_crowd: Crowd, end: str) -> None:
    crowd = postgres_crowd
    neighbours = [enqueue(payload=n, unique_key=f"k{n}") for n in range(SIZE)]
    wanting = [enqueue(payload="waited", unique_key="held")] * SIZE

    with holding(crowd.place, "held") as connection:

        async def after(callers: list[Any]) -> None:
            await ended(callers[SIZE:])
            assert all(map(goes_on, callers[:SIZE]))
            connection.execute(end)

        answers = values(await crowd.at_once(*wanting, *neighbours, after=after))

    assert all(answer.inserted for answer in answers[SIZE:])
    assert sum(answer.inserted for answer in answers[:SIZE]) == (1 if end == "rollback" else 0)
    assert len({answer.id for answer in answers[:SIZE]}) == 1
    assert len(await crowd.onefold.find()) == SIZE + 1
    await crowd.is_idle()


async def test_neighbours_settle_while_a_claim_is_held(postgres_crowd: Crowd) -> None:
    crowd = postgres_crowd
    claims = await crowd.claims(SIZE)

    with crowd.place.connection() as connection:
        connection.execute("begin")
        table = crowd.place.table("claim")
        connection.execute(f"select 1 from {table} where key = '0' for update")

        async def after(callers: list[Any]) -> None:
            await ended(callers[1:])
            assert goes_on(callers[0])
            connection.execute("rollback")

        values(
            await crowd.at_once(*(settle(claim, n) for n, claim in enumerate(claims)), after=after)
        )

    await crowd.are_settled(range(SIZE))
    await crowd.is_idle()


async def test_more_held_keys_than_connections_leave_some_for_the_others(
    postgres_crowd: Crowd,
) -> None:
    crowd = postgres_crowd
    keys = [f"held {number}" for number in range(CONNECTIONS + HELD_KEYS)]

    with holding(crowd.place, *keys) as connection:

        async def after(callers: list[Any]) -> None:
            await ended(callers[len(keys) :])
            # A call that is not batched needs a connection, too.
            assert len(await crowd.onefold.find()) == SIZE
            assert (await crowd.onefold.enqueue("mail", unique_key="another")).inserted
            assert all(map(goes_on, callers[: len(keys)]))
            connection.execute("commit")

        answers = values(
            await crowd.at_once(
                *(enqueue(unique_key=key) for key in keys),
                *(enqueue(payload=n) for n in range(SIZE)),
                after=after,
            )
        )

    assert all(answer.duplicate for answer in answers[: len(keys)])
    assert all(answer.inserted for answer in answers[len(keys) :])
    await crowd.is_idle()


async def test_whoever_waits_too_long_is_told_that_it_is_busy(hasty_crowd: Crowd) -> None:
    crowd = hasty_crowd

    with holding(crowd.place, "held"):
        answers = await crowd.unbarred(*[enqueue(unique_key="held")] * SIZE)

    assert [type(answer.error) for answer in answers] == [DatabaseBusy] * SIZE
    assert len({id(answer.error) for answer in answers}) == SIZE
    assert (await crowd.onefold.enqueue("mail", unique_key="held")).inserted
    assert len(await crowd.onefold.find()) == 1
    await crowd.is_idle()
