"""Engines and batches at once, on four shards: nothing lost, nothing twice, nobody starved."""

from collections import Counter
from uuid import uuid4

import pytest

from onefold import NewJob
from onefold.claims import Replay, Won
from onefold.model.ids import shard_of
from onefold.model.job import OnDuplicate
from tests.fixtures.place import Place
from tests.fixtures.shards import SHARDS
from tests.race.crew import SIZE, Crew, Racer, race_by, race_threads, values
from tests.race.test_batches import enqueue_batch, enqueue_batch_within
from tests.race.test_deliveries import HOUR, take_until_empty

ROUNDS = 2
"""How often every racer goes round all shards."""
CALLS = 12


def fill(place: Place, *, each: int) -> list[str]:
    """Store jobs until every shard has so many; their ids."""
    ids: list[str] = []
    on_shard: Counter[int] = Counter()
    with place.open() as onefold:
        while min(on_shard[shard] for shard in range(SHARDS)) < each:
            jobs = [NewJob("race", unique_key=uuid4().hex) for _ in range(each)]
            ids += [answer.id for answer in onefold.enqueue_many(jobs)]
            on_shard = Counter(shard for (shard,) in place.rows("select shard from {job}"))
    return ids


def go_round(racer: Racer) -> list[int]:
    """Take and finish one by one; the shards that were visited."""
    visited: list[int] = []
    for _ in range(ROUNDS * SHARDS):
        (job,) = racer.onefold.deliveries.take(worker=f"w{racer.rank}", lease=HOUR)
        racer.onefold.deliveries.finish([job])
        visited.append(shard_of(job.id, SHARDS))
    return visited


def test_every_engine_goes_round_all_shards_while_others_do(spread: Place, crew: Crew) -> None:
    # As many as all engines could take there together: no shard runs out.
    fill(spread, each=SIZE * ROUNDS * SHARDS)

    for visited in values(crew.race(spread, go_round)):
        rounds = [visited[start : start + SHARDS] for start in range(0, len(visited), SHARDS)]
        assert [sorted(shards) for shards in rounds] == [list(range(SHARDS))] * ROUNDS


def test_threads_of_one_engine_share_its_turns(spread: Place) -> None:
    threads = 8
    fill(spread, each=threads * ROUNDS * SHARDS)

    visited = Counter(
        shard for shards in values(race_threads(spread, go_round, size=threads)) for shard in shards
    )
    assert visited == dict.fromkeys(range(SHARDS), threads * ROUNDS)


def test_engines_that_start_together_do_not_all_begin_at_one_shard(spread: Place) -> None:
    fill(spread, each=24)

    firsts: set[int] = set()
    for _ in range(24):
        with spread.open() as onefold:
            (job,) = onefold.deliveries.take(worker="w", lease=HOUR)
            firsts.add(shard_of(job.id, SHARDS))
    assert len(firsts) > 1


def test_no_job_of_any_shard_is_taken_twice_and_none_is_left(spread: Place, crew: Crew) -> None:
    stored = fill(spread, each=40)

    taken = [
        one
        for racer in values(race_by("processes", crew, spread, take_until_empty))
        for one in racer
    ]
    assert Counter(taken) == Counter((job_id, 1) for job_id in stored)


@pytest.mark.parametrize("on_duplicate", ["keep", "replace", "rerun"])
@pytest.mark.parametrize("within", [False, True], ids=["alone", "within"])
def test_batches_over_all_shards_agree_on_every_key(
    spread: Place, crew: Crew, *, within: bool, on_duplicate: OnDuplicate
) -> None:
    work = enqueue_batch_within if within else enqueue_batch
    for _ in range(5):
        answers = values(race_by("processes", crew, spread, work, uuid4().hex, on_duplicate))
        for key in answers[0]:
            given = [answer[key] for answer in answers]
            assert len({answer.id for answer in given}) == 1
            assert sum(answer.inserted for answer in given) == 1


async def enqueue_and_settle(racer: Racer, prefix: str) -> dict[str, str]:
    """Single calls, which may share a batch with those of others; the job of each key."""
    jobs: dict[str, str] = {}
    for number in range(CALLS):
        shared, own = f"{prefix} {number}", f"{prefix} {number} {racer.rank}"
        answer = await racer.calls.enqueue("race", unique_key=shared, idempotency_key=own)
        jobs[shared] = answer.id
        claimed = await racer.calls.claim(prefix, own, lease=HOUR)
        assert isinstance(claimed, Won)
        await racer.calls.keys.settle(claimed.claim, own)
    return jobs


@pytest.mark.parametrize("racers", ["threads", "tasks"])
def test_single_calls_of_many_go_to_their_own_shards(
    spread: Place, crew: Crew, racers: str
) -> None:
    """Gathered or not: each key is decided, and each outcome stored, on the shard it belongs to."""
    answers = values(race_by(racers, crew, spread, enqueue_and_settle, racers))

    assert all(answer == answers[0] for answer in answers)
    assert len(set(answers[0].values())) == CALLS
    with spread.open() as onefold:
        for rank in range(len(answers)):
            for number in range(CALLS):
                shared, own = f"{racers} {number}", f"{racers} {number} {rank}"
                assert onefold.enqueue("race", idempotency_key=own).id == answers[0][shared]
                replayed = onefold.claim(racers, own)
                assert isinstance(replayed, Replay)
                assert replayed.result == own
