"""One statement and one commit for a crowd, and for each of it its own answer or error."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import AlreadyEnqueued, KeyReused, LeaseLost
from tests.batching.crowd import Call, Commits, Crowd, enqueue, settle
from tests.fixtures.colours import Coloured
from tests.race.crew import values

SIZE = 24
HOUR = timedelta(hours=1)


async def stored(crowd: Crowd) -> dict[str, Any]:
    """Every job by its id."""
    return {job.id: job for job in await crowd.onefold.find(limit=100)}


class TestCommits:
    @pytest.mark.parametrize("some_unique", [True, False])
    async def test_enqueues_with_publish_keys_share_one(
        self, crowd: Crowd, *, some_unique: bool
    ) -> None:
        commits = Commits(crowd.place, "job")

        await crowd.at_once(
            *(
                enqueue(
                    unique_key=f"u{n}" if n % 2 and some_unique else None, idempotency_key=f"p{n}"
                )
                for n in range(SIZE)
            )
        )

        assert commits.count() <= crowd.most_commits
        assert len(await stored(crowd)) == SIZE

    async def test_tenants_share_one(self, crowd: Crowd) -> None:
        commits = Commits(crowd.place, "job")

        def of(tenant: str) -> Call:
            async def call(onefold: Coloured) -> Any:
                return await onefold.tenant(tenant).enqueue("mail", tenant, unique_key="same")

            return call

        answers = values(await crowd.at_once(*(of(f"tenant {n}") for n in range(SIZE))))

        assert commits.count() <= crowd.most_commits
        assert all(answer.inserted for answer in answers)
        for number, answer in enumerate(answers):
            job = await crowd.onefold.tenant(f"tenant {number}").get(answer.id)
            assert job.payload == f"tenant {number}"

    async def test_settles_share_one(self, crowd: Crowd) -> None:
        claims = await crowd.claims(SIZE)
        commits = Commits(crowd.place, "claim")

        values(await crowd.at_once(*(settle(claim, n) for n, claim in enumerate(claims))))

        assert commits.count() <= crowd.most_commits
        await crowd.are_settled(range(SIZE))

    async def test_a_call_alone_leaves_alone_and_at_once(self, crowd: Crowd) -> None:
        commits = Commits(crowd.place, "job")

        for _ in range(3):
            await crowd.onefold.enqueue("mail")

        assert commits.count() == 3


class TestAnswers:
    @pytest.mark.parametrize("key", ["unique_key", "idempotency_key"])
    async def test_one_of_a_crowd_with_one_key_is_new(self, crowd: Crowd, key: str) -> None:
        answers = values(await crowd.at_once(*[enqueue(**{key: "same"})] * SIZE))

        assert sum(answer.inserted for answer in answers) == 1
        assert {answer.id for answer in answers} == set(await stored(crowd))
        assert (await crowd.onefold.keys.duplicates(answers[0].id)).count == SIZE - 1

    async def test_whoever_wants_an_error_gets_it_and_nobody_else(self, crowd: Crowd) -> None:
        holder = await crowd.onefold.enqueue("mail", "old", unique_key="held")
        calls = [
            enqueue(payload=n, unique_key="held" if n % 3 == 0 else f"k{n}", on_duplicate="raise")
            for n in range(SIZE)
        ]

        answers = await crowd.at_once(*calls)

        jobs = await stored(crowd)
        for number, answer in enumerate(answers):
            if number % 3 == 0:
                assert isinstance(answer.error, AlreadyEnqueued)
                assert answer.error.holder_id == holder.id
                assert answer.error.key == "held"
            else:
                assert jobs[answer.get().id].payload == number
        assert len(jobs) == 1 + SIZE - SIZE // 3

    async def test_a_key_that_is_used_for_something_else_is_its_users_error(
        self, crowd: Crowd
    ) -> None:
        await crowd.onefold.enqueue("mail", 0, unique_key="u", idempotency_key="p")
        strict = {"on_mismatch": "raise"}

        answers = await crowd.at_once(
            enqueue(payload=0, unique_key="u", **strict),
            enqueue(payload=1, unique_key="u", **strict),
            enqueue(payload=0, idempotency_key="p", **strict),
            enqueue(payload=1, idempotency_key="p", **strict),
            enqueue(payload=1, unique_key="free", **strict),
            enqueue(payload=1, idempotency_key="free", **strict),
        )

        assert [type(answer.error) for answer in answers] == [
            type(None), KeyReused, type(None), KeyReused, type(None), type(None),
        ]  # fmt: skip
        assert [a.get().duplicate for a in answers if a.error is None] == [True, True, False, False]

    async def test_a_stale_settle_is_refused_beside_good_ones(self, crowd: Crowd) -> None:
        claims = await crowd.claims(SIZE)
        stale = {0, 5, SIZE - 1}
        for number in stale:
            await crowd.onefold.keys.force_release("crowd", str(number))

        answers = await crowd.at_once(*(settle(claim, n) for n, claim in enumerate(claims)))

        for number, answer in enumerate(answers):
            assert isinstance(answer.error, LeaseLost) == (number in stale)
        await crowd.are_settled(set(range(SIZE)) - stale)

    async def test_policies_and_surfaces_mix(self, crowd: Crowd) -> None:
        await crowd.onefold.enqueue("mail", "old", unique_key="replaced")
        running = await crowd.onefold.enqueue("mail", "old", unique_key="rerun", queue="rerun")
        (taken,) = await crowd.onefold.deliveries.take(["rerun"], worker="w", lease=HOUR)
        (claim,) = await crowd.claims(1)

        answers = values(
            await crowd.at_once(
                enqueue(payload="new", unique_key="replaced", on_duplicate="replace"),
                enqueue(payload="next", unique_key="rerun", on_duplicate="rerun"),
                enqueue(payload="kept", unique_key="kept"),
                enqueue(payload="raised", unique_key="raised", on_duplicate="raise"),
                enqueue(payload="strict", unique_key="strict", on_mismatch="raise"),
                enqueue(
                    payload="debounced",
                    unique_key="debounced",
                    on_duplicate="replace",
                    max_wait=HOUR,
                ),
                settle(claim, "done"),
                enqueue(payload="plain"),
            )
        )

        replaced, rerun, *new = answers
        assert replaced.replaced
        assert (rerun.id, rerun.duplicate) == (running.id, True)
        assert all(answer is None or answer.inserted for answer in new)
        await crowd.onefold.deliveries.finish([taken])
        assert {job.payload for job in (await stored(crowd)).values()} == {
            "new", "old", "next", "kept", "raised", "strict", "debounced", "plain",
        }  # fmt: skip
        assert (await crowd.onefold.claim("crowd", "0")).result == "done"


@pytest.mark.parametrize("bad", ["unique_key", "payload"])
async def test_bad_input_is_never_queued(crowd: Crowd, bad: str) -> None:
    options: dict[str, Any] = {"unique_key": "\0"} if bad == "unique_key" else {}
    payload = float("nan") if bad == "payload" else None

    answers = await crowd.at_once(
        enqueue(payload=payload, **options), *(enqueue() for _ in range(crowd.leaders + 3))
    )

    assert answers[0].error is not None
    assert len(values(answers[1:])) == len(await stored(crowd))
