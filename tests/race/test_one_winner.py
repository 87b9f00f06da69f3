"""N enqueues of one key at once: one new, N-1 duplicates with its id, no error (rule 3)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from onefold import AlreadyEnqueued, Enqueued, InvalidInput, KeyReused
from onefold.model.queue import Queue, QueueSettings
from tests.fixtures.place import Place
from tests.fixtures.proof import proved, repetitions
from tests.race.crew import Answer, Crew, Racer, errors, race_by, race_threads, values

ROUNDS = repetitions(2, soak=200)
HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)
FIRST: Any = {"worker": "first", "lease": HOUR}

Options: TypeAlias = dict[str, Any]
Race: TypeAlias = Callable[[Place, Options], list[Answer[Enqueued]]]


async def enqueue(racer: Racer, options: Options) -> Enqueued:
    found: Enqueued = await racer.calls.enqueue("race", **_for(racer, options))
    return found


def _for(racer: Racer, options: Options) -> Options:
    """`{rank}` in an option tells the racers apart; all else they have in common."""
    return {
        name: value.replace("{rank}", str(racer.rank)) if isinstance(value, str) else value
        for name, value in options.items()
    }


@pytest.fixture(params=["processes", *proved("threads", "tasks")])
def race(request: pytest.FixtureRequest, crew: Crew) -> Race:
    """The same race between processes, threads, and tasks."""
    return lambda place, options: race_by(request.param, crew, place, enqueue, options)


def winner(answers: list[Answer[Enqueued]]) -> str:
    """The id of the one new job, which is also everybody else's answer."""
    found = values(answers)
    assert sorted(answer.duplicate for answer in found) == [False] + [True] * (len(found) - 1)
    (job_id,) = {answer.id for answer in found}
    return job_id


SCOPES: dict[str, Options] = {
    "queued": {"unique_while": "queued"},
    "active": {"unique_while": "active"},
    "exists": {"unique_while": "exists"},
    "for an hour": {"unique_for": HOUR},
    "active, and for an hour": {"unique_while": "active", "unique_for": HOUR},
    "across kinds": {"across_kinds": True},
    "replace": {"on_duplicate": "replace", "payload": "{rank}"},
    "rerun": {"on_duplicate": "rerun", "payload": "{rank}"},
}


@pytest.mark.parametrize("scope", SCOPES)
def test_of_many_enqueues_one_is_new_and_the_others_are_its_duplicates(
    race: Race, place: Place, scope: str
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        job_id = winner(race(place, {"unique_key": key, **SCOPES[scope]}))
        with place.open() as onefold:
            assert [job.id for job in onefold.find(unique_key=key)] == [job_id]


def test_of_many_publishes_one_is_new_and_the_others_are_its_duplicates(
    race: Race, place: Place
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        job_id = winner(race(place, {"idempotency_key": key}))
        # Whatever became of the job.
        with place.open() as onefold:
            assert onefold.cancel(job_id)
            assert onefold.enqueue("race", idempotency_key=key).id == job_id


@pytest.mark.parametrize("running", [False, True], ids=["queued", "running"])
def test_a_window_that_is_over_is_taken_by_one(race: Race, place: Place, *, running: bool) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        with place.open() as onefold:
            holder = onefold.enqueue("race", unique_key=key, unique_for=INSTANT, queue=key)
            taken = onefold.deliveries.take([key], **FIRST) if running else []
            job_id = winner(race(place, {"unique_key": key, "unique_for": HOUR}))
            assert job_id != holder.id
            # The old holder lost its key, and nothing else.
            assert [ended.status for ended in onefold.deliveries.finish(taken)] == (
                ["accepted"] if running else []
            )
            assert {job.id for job in onefold.find(unique_key=key)} == {holder.id, job_id}


def test_with_raise_one_is_new_and_the_others_are_told_the_holder(race: Race, place: Place) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        options: Options = {"unique_key": key, "on_duplicate": "raise"}
        options["idempotency_key"] = key + "{rank}"
        job_id, refusals = alone(race(place, options), AlreadyEnqueued)
        assert {getattr(error, "holder_id", None) for error in refusals} == {job_id}
        # Nothing of a refused call is left behind, its publish key included.
        claims = place.rows("select key, result from {claim}")
        assert [str(result) for name, result in claims if name.startswith(key)] == [job_id]
        options = {"unique_key": uuid4().hex, "payload": "{rank}", "on_mismatch": "raise"}
        job_id, _ = alone(race(place, options), KeyReused)
        with place.open() as onefold:
            assert onefold.get(job_id) is not None


def alone(answers: list[Answer[Enqueued]], error: type[Exception]) -> tuple[str, list[Any]]:
    """The id of the one new job, and what all others were told, which is such an error."""
    (job_id,) = [answer.value.id for answer in answers if answer.value is not None]
    refusals = errors(answers)
    assert len(refusals) == len(answers) - 1
    assert {type(each) for each in refusals} == {error}
    return job_id, refusals


def save_new_queue(racer: Racer, name: str) -> Queue:
    return racer.onefold.queues.save(name, QueueSettings(max_attempts=racer.rank + 1), new=True)


def test_a_new_queue_of_several_callers_has_the_settings_of_one_and_the_others_know(
    place: Place,
) -> None:
    for _ in range(ROUNDS):
        name = f"race-{uuid4().hex}"
        answers = race_threads(place, save_new_queue, name)
        (won,) = [answer.value for answer in answers if answer.error is None]
        assert {type(error) for error in errors(answers)} == {InvalidInput}
        with place.open() as onefold:
            assert onefold.queues.get(name) == won


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
