"""A crowd whose commit is answered by silence: nobody gets an error, and nobody a second job."""

from typing import Any

import pytest

from tests.batching.crowd import Crowd, enqueue, settle
from tests.fixtures.proof import proved
from tests.race.crew import values

SIZE = 10


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unique_key": "k", "idempotency_key": "p"},
        *proved(
            {"unique_key": "k"},
            {"idempotency_key": "p"},
            {"unique_key": "k", "on_duplicate": "raise"},
            {"unique_key": "k", "on_duplicate": "replace"},
        ),
    ],
    ids=lambda options: ", ".join(options) or "no key",
)
async def test_each_job_is_stored_once_and_called_new(
    postgres_crowd: Crowd, options: dict[str, Any]
) -> None:
    crowd = postgres_crowd

    def own(number: int) -> dict[str, Any]:
        return {
            name: f"{value}{number}" if name.endswith("key") else value
            for name, value in options.items()
        }

    crowd.wire.lose_answers(crowd.leaders + 1)

    answers = values(await crowd.at_once(*(enqueue(payload=n, **own(n)) for n in range(SIZE))))

    assert crowd.wire.lost == crowd.leaders + 1
    assert all(answer.inserted for answer in answers)
    jobs = {job.id: job.payload for job in await crowd.onefold.find()}
    assert jobs == {answer.id: number for number, answer in enumerate(answers)}
    assert crowd.place.rows("select count(*) from {duplicate}") == [(0,)]


async def test_of_many_with_one_key_one_is_called_new(postgres_crowd: Crowd) -> None:
    crowd = postgres_crowd
    crowd.wire.lose_answers(crowd.leaders + 1)

    answers = values(await crowd.at_once(*[enqueue(unique_key="k")] * SIZE))

    assert crowd.wire.lost == crowd.leaders + 1
    assert sum(answer.inserted for answer in answers) == 1
    assert len(await crowd.onefold.find()) == 1


async def test_settled_claims_stay_settled(postgres_crowd: Crowd) -> None:
    crowd = postgres_crowd
    claims = await crowd.claims(SIZE)
    crowd.wire.lose_answers(crowd.leaders + 1)

    values(await crowd.at_once(*(settle(claim, n) for n, claim in enumerate(claims))))

    assert crowd.wire.lost == crowd.leaders + 1
    await crowd.are_settled(range(SIZE))


async def test_a_wire_that_is_cut_under_a_crowd_is_laid_anew(postgres_crowd: Crowd) -> None:
    crowd = postgres_crowd

    async def cut(_: list[Any]) -> None:
        crowd.wire.cut()

    answers = values(await crowd.at_once(*(enqueue(payload=n) for n in range(SIZE)), before=cut))

    assert all(answer.inserted for answer in answers)
    assert sorted(job.payload for job in await crowd.onefold.find()) == list(range(SIZE))
