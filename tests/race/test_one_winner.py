"""N enqueues of one key at once: one new, N-1 duplicates with its id, no error (rule 3)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from onefold import AlreadyEnqueued, Enqueued, InvalidInput, KeyReused
from onefold.model.delivery import Delivery
from onefold.model.queue import Queue, QueueSettings
from tests.fixtures.place import Place
from tests.fixtures.soak import repetitions
from tests.race.crew import Answer, Crew, Racer, errors, race_tasks, race_threads, values

ROUNDS = repetitions(2, soak=200)
HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)
FIRST: Any = {"worker": "first", "lease": HOUR}

Options: TypeAlias = dict[str, Any]
Race: TypeAlias = Callable[[Place, Options], list[Answer[Enqueued]]]


def enqueue(racer: Racer, options: Options) -> Enqueued:
    return racer.onefold.enqueue("race", **_for(racer, options))


async def aenqueue(racer: Racer, options: Options) -> Enqueued:
    return await racer.onefold.aenqueue("race", **_for(racer, options))


def _for(racer: Racer, options: Options) -> Options:
    """`{rank}` in an option tells the racers apart; all else they have in common."""
    return {
        name: value.replace("{rank}", str(racer.rank)) if isinstance(value, str) else value
        for name, value in options.items()
    }


@pytest.fixture(params=["processes", "threads", "tasks"])
def race(request: pytest.FixtureRequest) -> Race:
    """The same race between processes, threads, and tasks."""
    if request.param == "threads":
        return lambda place, options: race_threads(place, enqueue, options)
    if request.param == "tasks":
        return lambda place, options: race_tasks(place, aenqueue, options)
    crew: Crew = request.getfixturevalue("crew")
    return lambda place, options: crew.race(place, enqueue, options)


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


def test_publish_keys_of_their_own_do_not_help_those_who_share_a_unique_key(
    race: Race, place: Place
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        options = {"unique_key": key, "idempotency_key": key + "{rank}"}
        job_id = winner(race(place, options))
        with place.open() as onefold:
            onefold.cancel(job_id)
            # Each publish key stands for the job that was answered, also where another made it.
            again = race(place, options)
            assert {answer.id for answer in values(again)} == {job_id}
            assert all(answer.duplicate for answer in values(again))


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


def test_a_holder_that_expired_while_it_waited_gives_its_key_to_one(
    race: Race, place: Place
) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    for _ in range(ROUNDS):
        key = uuid4().hex
        with place.open(clock=lambda: long_ago) as past:
            holder = past.enqueue("race", unique_key=key, expires_at=long_ago + HOUR)
        job_id = winner(race(place, {"unique_key": key}))
        with place.open() as onefold:
            states = {job.id: (job.state, job.reason) for job in onefold.find(unique_key=key)}
        assert states == {holder.id: ("dead", "expired"), job_id: ("ready", None)}


HELD: dict[str, Options] = {
    "ready": {"unique_while": "queued"},
    "running": {"unique_while": "active"},
    "completed": {"unique_while": "exists"},
    "completed, for an hour": {"unique_for": HOUR},
}


@pytest.mark.parametrize("state", HELD)
def test_a_key_that_is_held_gives_everybody_its_holder(
    race: Race, place: Place, state: str
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        with place.open() as onefold:
            holder = onefold.enqueue("race", unique_key=key, queue=key, **HELD[state])
            taken = onefold.deliveries.take([key if state != "ready" else "empty"], **FIRST)
            if state.startswith("completed"):
                onefold.deliveries.finish(taken)
        answers = values(race(place, {"unique_key": key, "unique_while": "queued"}))
        assert {(answer.id, answer.duplicate) for answer in answers} == {(holder.id, True)}
        assert {answer.state for answer in answers} == {state.partition(",")[0]}


def test_with_raise_one_is_new_and_the_others_are_told_the_holder(race: Race, place: Place) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        options = {
            "unique_key": key, "idempotency_key": key + "{rank}", "on_duplicate": "raise",
        }  # fmt: skip
        answers = race(place, options)
        (job_id,) = [answer.value.id for answer in answers if answer.value is not None]
        refusals = errors(answers)
        assert len(refusals) == len(answers) - 1
        assert {type(error) for error in refusals} == {AlreadyEnqueued}
        assert {getattr(error, "holder_id", None) for error in refusals} == {job_id}
        # Nothing of a refused call is left behind, its publish key included.
        claims = place.rows("select key, result from {claim}")
        assert [str(result) for name, result in claims if name.startswith(key)] == [job_id]


def test_with_mismatches_refused_one_payload_wins(race: Race, place: Place) -> None:
    for _ in range(ROUNDS):
        answers = race(
            place, {"unique_key": uuid4().hex, "payload": "{rank}", "on_mismatch": "raise"}
        )
        (job_id,) = [answer.value.id for answer in answers if answer.value is not None]
        refusals = errors(answers)
        assert len(refusals) == len(answers) - 1
        assert {type(error) for error in refusals} == {KeyReused}
        with place.open() as onefold:
            assert onefold.get(job_id) is not None


@pytest.mark.parametrize("on_duplicate", ["replace", "rerun"])
def test_a_queued_holder_takes_the_payload_of_whoever_came_last(
    race: Race, place: Place, on_duplicate: str
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        options = {"unique_key": key, "payload": "{rank}", "on_duplicate": on_duplicate}
        with place.open() as onefold:
            holder = onefold.enqueue("race", "first", unique_key=key)
            answers = values(race(place, options))
            assert {(answer.id, answer.replaced) for answer in answers} == {(holder.id, True)}
            (job,) = onefold.find(unique_key=key)
            assert job.payload in {str(rank) for rank in range(len(answers))}


def test_a_running_holder_gets_exactly_one_successor(race: Race, place: Place) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        options = {"unique_key": key, "payload": "{rank}", "on_duplicate": "rerun", "queue": key}
        with place.open() as onefold:
            holder = onefold.enqueue("race", "first", unique_key=key, queue=key)
            taken = onefold.deliveries.take([key], **FIRST)
            answers = values(race(place, options))
            assert {(answer.id, answer.duplicate) for answer in answers} == {(holder.id, True)}
            ended, (successor,) = onefold.deliveries.finish_and_take(
                taken, [key], limit=10, **FIRST
            )
            assert [one.status for one in ended] == ["accepted"]
            assert successor.payload in {str(rank) for rank in range(len(answers))}


def test_a_delivery_that_is_finished_by_its_name_gives_its_successor(place: Place) -> None:
    with place.open() as onefold:
        onefold.enqueue("race", "first", unique_key="k")
        (taken,) = onefold.deliveries.take(**FIRST)
        onefold.enqueue("race", "second", unique_key="k", on_duplicate="rerun")
        named = Delivery(taken.id, taken.fence)
        ended, (successor,) = onefold.deliveries.finish_and_take([named], limit=10, **FIRST)
        assert [one.status for one in ended] == ["accepted"]
        assert successor.payload == "second"


def enqueue_or_finish(racer: Racer, key: str) -> Enqueued | None:
    """One of them ends the holder while the others ask for its key."""
    if racer.rank == 0:
        (job,) = racer.onefold.find(unique_key=key, state="running")
        racer.onefold.deliveries.finish([job])
        return None
    return racer.onefold.enqueue("race", unique_key=key, queue=key)


@pytest.mark.parametrize("racers", ["processes", "threads"])
def test_a_key_that_is_given_up_meanwhile_has_one_new_holder_at_most(
    place: Place, crew: Crew, racers: str
) -> None:
    start = partial(crew.race, place) if racers == "processes" else partial(race_threads, place)
    for _ in range(repetitions(5, soak=400)):
        key = uuid4().hex
        with place.open() as onefold:
            holder = onefold.enqueue("race", unique_key=key, queue=key)
            onefold.deliveries.take([key], **FIRST)
            found = [answer for answer in values(start(enqueue_or_finish, key)) if answer]
            new = {answer.id for answer in found if answer.inserted}
            assert len(new) <= 1
            assert {answer.id for answer in found if answer.duplicate} <= {holder.id} | new
            assert {job.id for job in onefold.find(unique_key=key)} == {holder.id} | new


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
