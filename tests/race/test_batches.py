"""Batches that share keys in different orders do not deadlock, and agree on every key (rule 5)."""

import random
from datetime import timedelta
from uuid import uuid4

import pytest

from onefold import Enqueued, NewJob
from onefold.model.job import OnDuplicate
from tests.fixtures.place import Place
from tests.fixtures.proof import proved, repetitions
from tests.race.crew import Crew, Racer, race_by, values

ROUNDS = repetitions(10, soak=500)
KEYS = 24
HOUR = timedelta(hours=1)


def batch(racer: Racer, prefix: str) -> list[NewJob]:
    """The same keys for everybody, each racer in an order of its own, and one key twice."""
    order = [f"{prefix}:{number}" for number in range(KEYS)]
    random.Random(f"{prefix} {racer.rank}").shuffle(order)
    return [
        NewJob("race", {"rank": racer.rank}, unique_key=key, idempotency_key=f"{key}:{racer.rank}")
        for key in [*order, order[0]]
    ]


async def enqueue_batch(
    racer: Racer, prefix: str, on_duplicate: OnDuplicate
) -> dict[str, Enqueued]:
    jobs = batch(racer, prefix)
    answers = await racer.calls.enqueue_many(jobs, on_duplicate=on_duplicate)
    return _first_by_key(jobs, list(answers))


def enqueue_batch_within(
    racer: Racer, prefix: str, on_duplicate: OnDuplicate
) -> dict[str, Enqueued]:
    """In a caller's transaction nobody retries for us: a deadlock would be an error here."""
    jobs = batch(racer, prefix)
    with racer.place.transaction() as connection:
        answers = racer.onefold.within(connection).enqueue_many(jobs, on_duplicate=on_duplicate)
    return _first_by_key(jobs, list(answers))


def _first_by_key(jobs: list[NewJob], answers: list[Enqueued]) -> dict[str, Enqueued]:
    """The answer for each key; the key that is in the batch twice has the first one's job."""
    assert answers[0].id == answers[-1].id
    assert answers[-1].duplicate
    return {
        job.unique_key or "": answer for job, answer in zip(jobs[:-1], answers[:-1], strict=True)
    }


@pytest.mark.parametrize("on_duplicate", ["keep", "replace", "rerun"])
@pytest.mark.parametrize("racers", ["processes", *proved("transactions", "threads", "tasks")])
def test_batches_with_shared_keys_in_different_orders_agree_on_every_key(
    place: Place, crew: Crew, racers: str, on_duplicate: OnDuplicate
) -> None:
    for _ in range(ROUNDS):
        prefix = uuid4().hex
        if racers == "transactions":
            answers = crew.race(place, enqueue_batch_within, prefix, on_duplicate)
        else:
            answers = race_by(racers, crew, place, enqueue_batch, prefix, on_duplicate, size=4)
        found: list[dict[str, Enqueued]] = values(answers)
        for key in found[0]:
            assert len({answer[key].id for answer in found}) == 1
            assert sum(answer[key].inserted for answer in found) == 1
        stored = place.rows("select count(*) from {job} where unique_key like '" + prefix + "%'")
        assert stored == [(KEYS,)]


def change_batch(racer: Racer, keys: list[str]) -> int:
    """Half of the racers change the holders, half of them end them: rows and keys crossed."""
    mine = random.Random(racer.rank).sample(keys, len(keys))
    if racer.rank % 2:
        jobs = [NewJob("race", {"rank": racer.rank}, unique_key=key) for key in mine]
        return racer.onefold.enqueue_many(jobs, on_duplicate="rerun").inserted
    held = {job.unique_key: job for job in racer.onefold.find(state="running", limit=1_000)}
    ended = racer.onefold.deliveries.finish([held[key] for key in mine if key in held])
    return sum(one.status == "accepted" for one in ended)


def test_batches_of_triggers_and_batches_of_finishes_do_not_deadlock(
    place: Place, crew: Crew
) -> None:
    for _ in range(ROUNDS):
        keys = [uuid4().hex for _ in range(KEYS)]
        with place.open() as onefold:
            onefold.enqueue_many([NewJob("race", unique_key=key) for key in keys])
            onefold.deliveries.take(limit=KEYS, worker="first", lease=HOUR)
            counts = values(crew.race(place, change_batch, keys))
            # Every holder was finished by one of them, and every trigger made one job at most.
            assert counts[0] + counts[2] == KEYS
            after = onefold.deliveries.take(limit=10 * KEYS, worker="first", lease=HOUR)
            assert sorted(job.unique_key or "" for job in after) == sorted(keys)
            onefold.deliveries.finish(after)
