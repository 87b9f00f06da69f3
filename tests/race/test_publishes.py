"""Publishes with few keys, by many at once: one job per publish key, one holder per unique key."""

import random
from collections import defaultdict
from datetime import timedelta
from random import getrandbits
from typing import Any, NamedTuple

import pytest

from onefold import Enqueued
from tests.fixtures.place import Place
from tests.fixtures.soak import repetitions
from tests.race import audit
from tests.race.crew import Crew, Racer, race_threads, values

STEPS = repetitions(120, soak=2_000)
HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)


class Told(NamedTuple):
    """An answer, and the publish key that it was for."""

    key: str
    answer: Enqueued
    committed: bool


def publish(racer: Racer, seed: str) -> list[Told]:
    """Publish, finish and roll back. A few steps share a publish key, so that they meet."""
    dice = random.Random(f"{seed} {racer.rank}")
    told: list[Told] = []
    for step in range(STEPS):
        key = f"{seed}:{step // 5}:{dice.randrange(3)}"
        options: dict[str, Any] = {"idempotency_key": key}
        if dice.random() < 0.6:
            options["unique_key"] = f"u{dice.randrange(2)}"
            options |= dice.choice(
                [{}, {"unique_while": "queued"}, {"unique_for": timedelta(milliseconds=3)}]
            )
        committed = True
        if dice.random() < 0.8:
            answer = racer.onefold.enqueue("publish", {"key": key}, **options)
        else:
            committed = dice.random() < 0.5
            with racer.place.connection() as connection:
                connection.execute(racer.place.begin)
                answer = racer.onefold.within(connection).enqueue(
                    "publish", {"key": key}, **options
                )
                connection.execute("commit" if committed else "rollback")
        told.append(Told(key, answer, committed))
        if dice.random() < 0.3:
            jobs = racer.onefold.deliveries.take(["default"], limit=2, worker="w", lease=HOUR)
            racer.onefold.deliveries.finish(jobs)
    return told


@pytest.mark.parametrize("racers", ["processes", "threads"])
def test_one_publish_is_one_job_whoever_repeats_it(place: Place, crew: Crew, racers: str) -> None:
    audit.install(place)
    seed = str(getrandbits(64))
    if racers == "processes":
        reports = values(crew.race(place, publish, seed))
    else:
        reports = values(race_threads(place, publish, seed, size=4))

    answers: dict[str, list[Told]] = defaultdict(list)
    for told in (one for report in reports for one in report if one.committed):
        answers[told.key].append(told)
    kept = dict(place.rows("select key, result from {claim} where surface = 'publish'"))
    for key, all_told in answers.items():
        assert {told.answer.id for told in all_told} == {kept[key]}
        assert sum(told.answer.inserted for told in all_told) <= 1
        assert not any(told.answer.mismatch for told in all_told if told.answer.inserted)
    stored = {job_id for (job_id,) in place.rows("select cast(id as text) from {job}")}
    assert set(kept.values()) <= stored, "a publish key stands for a job that was never stored"
    undone = {t.answer.id for r in reports for t in r if not t.committed and t.answer.inserted}
    inserted = {t.answer.id for told in answers.values() for t in told if t.answer.inserted}
    audit.check(audit.read(place), audit.Books(inserted, undone, set()))


def expire(racer: Racer, key: str) -> Enqueued:
    """Publish a key whose time is over, and whose job has ended."""
    return racer.onefold.enqueue("publish", idempotency_key=key, unique_key=f"{key}:{racer.rank}")


def test_a_publish_key_that_is_over_is_taken_over_once(place: Place, crew: Crew) -> None:
    with place.open() as onefold:
        for number in range(repetitions(10, soak=300)):
            key = f"k{number}"
            first = onefold.enqueue("publish", idempotency_key=key, idempotency_for=INSTANT)
            onefold.cancel(first.id)

            answers = values(crew.race(place, expire, key))

            assert sum(answer.inserted for answer in answers) == 1
            assert len({answer.id for answer in answers}) == 1
            assert answers[0].id != first.id
