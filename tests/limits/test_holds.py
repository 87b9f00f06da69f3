"""Processes that hold, open, probe and answer at once: one probe, one word, no hold forgotten."""

from collections import Counter
from datetime import timedelta
from typing import Final

from onefold import Limit, NewJob, Onefold, QueueSettings, WrongState
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.limits.test_races import work_until_empty
from tests.race.crew import Crew, Racer, values

HOUR: Final = timedelta(hours=1)
NOW: Final = timedelta(0)
ENDPOINT: Final = "https://example.com/hook"


def fill(onefold: Onefold, count: int) -> list[str]:
    jobs = [NewJob("race", queue="mine", unique_key=f"race {n}") for n in range(count)]
    return [answer.id for answer in onefold.enqueue_many(jobs)]


def test_there_is_one_probe_on_all_machines(raced: Place, crew: Crew) -> None:
    with raced.open() as onefold:
        ids = fill(onefold, repetitions(60, soak=2_000))
        onefold.queues.hold("mine", after=NOW, why="circuit")

    answers = values(crew.race(raced, work_until_empty, 9))

    assert max(answer[1] for answer in answers) == 1
    assert sorted(job_id for answer in answers for job_id, _ in answer[0]) == sorted(ids)


def say_something(racer: Racer, job_id: str) -> str:
    """Each has another word about the same delivery, and none says which it means."""
    calls = racer.onefold
    try:
        match racer.rank:
            case 0:
                ended = calls.deliveries.acknowledge(job_id)
            case 1:
                ended = calls.deliveries.nack(job_id, retryable=False)
            case 2:
                ended = calls.deliveries.defer_job(job_id, after=HOUR, hold_queue=True)
            case _:
                ended = calls.deliveries.acknowledge(job_id)
    except WrongState:
        return "refused"
    return ended.status


def test_one_word_counts_of_those_that_come_at_once(raced: Place, crew: Crew) -> None:
    for _ in range(repetitions(8, soak=300)):
        with raced.open() as onefold:
            job_id = onefold.enqueue("race", queue="mine").id
            (job,) = onefold.deliveries.take(["mine"], worker="w", lease=HOUR)
            onefold.deliveries.park(job, ack_timeout=HOUR)

        said = Counter(values(crew.race(raced, say_something, job_id)))

        assert said["accepted"] == 1
        assert said["already"] <= 1
        with raced.open() as onefold:
            ended = onefold.get(job_id)
            assert ended is not None
            held = {queue.name: queue.held_until for queue in onefold.queues.find()}.get("mine")
            # The hold is the defer's, and was written with it or not at all.
            assert (held is not None) == (ended.state == "scheduled")
            onefold.queues.end_hold("mine", force=True)
            onefold.delete(job_id)


def hold_and_limit(racer: Racer) -> None:
    """Two say how the queue is held, two how it is limited."""
    onefold = racer.onefold
    for turn in range(6):
        match racer.rank:
            case 0:
                onefold.queues.hold("mine", after=HOUR, why="deferred", force=turn % 2 == 0)
            case 1:
                onefold.queues.end_hold("mine", force=True)
            case 2:
                onefold.queues.set_limits("mine", limit=Limit(concurrency=1 + turn))
            case _:
                onefold.queues.clear_limits("mine")


def test_a_queue_is_controlled_while_it_is_held_or_limited(raced: Place, crew: Crew) -> None:
    for _ in range(repetitions(4, soak=100)):
        values(crew.race(raced, hold_and_limit))

        rows = raced.rows("select controlled, held_until, concurrency from {queue}")
        assert rows
        for controlled, held_until, concurrency in rows:
            assert bool(controlled) == (held_until is not None or concurrency is not None)
        # All shards are told the same.
        assert len({(bool(row[0]), row[1], row[2]) for row in rows}) == 1


def make_a_queue(racer: Racer, name: str) -> str:
    settings = QueueSettings(endpoint=ENDPOINT, max_attempts=1 + racer.rank)
    (secret,) = racer.onefold.queues.save(name, settings).secrets
    return secret.secret


def test_all_who_make_a_queue_at_once_are_told_the_same_secret(raced: Place, crew: Crew) -> None:
    for turn in range(repetitions(6, soak=200)):
        told = values(crew.race(raced, make_a_queue, f"queue {turn}"))

        assert len(set(told)) == 1
