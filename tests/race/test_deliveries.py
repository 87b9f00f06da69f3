"""Words about the same deliveries at once: taken once, ended once, never an error."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any, TypeAlias

from onefold import Job, NewJob, Onefold, WrongState
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.race.crew import Crew, Racer, race_by, values

HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)

Taken: TypeAlias = list[tuple[str, int]]


async def take_until_empty(racer: Racer) -> Taken:
    """Take, finish and take again, until nothing is left."""
    taken: Taken = []
    jobs: list[Job] = []
    worker: Any = {"limit": 3 + racer.rank, "worker": f"w{racer.rank}", "lease": HOUR}
    while True:
        ended, jobs = await racer.calls.deliveries.finish_and_take(
            jobs, ["mine", "default"], **worker
        )
        assert {one.status for one in ended} <= {"accepted"}
        if not jobs:
            return taken
        taken += [(job.id, job.fence) for job in jobs]


def test_no_job_is_taken_twice_and_none_is_left(place: Place, crew: Crew) -> None:
    count = repetitions(300, soak=20_000)
    with place.open() as onefold:
        for run in ("processes", "threads", "tasks"):
            jobs = [
                NewJob(run, queue="mine" if n % 3 else "default", priority=n % 5)
                for n in range(count)
            ]
            stored = [answer.id for answer in onefold.enqueue_many(jobs)]
            taken = values(race_by(run, crew, place, take_until_empty))
            found = [delivery for mine in taken for delivery in mine]
            assert sorted(found) == sorted((job_id, 1) for job_id in stored)
            # On PostgreSQL a take passes over rows that others are just taking: done is when
            # nothing is queued any more.
            assert place.rows("select count(*) from {job} where state <> 2") == [(0,)]


def _keyed(onefold: Onefold, count: int) -> list[str]:
    jobs = [NewJob("race", unique_key=f"key {n}") for n in range(count)]
    return [answer.id for answer in onefold.enqueue_many(jobs)]


def speak(racer: Racer, jobs: list[Job]) -> Counter[str]:
    """Everybody says something else about the same jobs, in an order of their own."""
    mine = random.Random(racer.rank).sample(jobs, len(jobs))
    engine = racer.onefold.deliveries
    said: Counter[str] = Counter()
    match racer.rank:
        case 0:
            said["beat"] += sum(not beat.lost for beat in engine.heartbeat(mine, lease=INSTANT))
            said["beat"] += sum(not beat.lost for beat in engine.heartbeat(jobs, lease=INSTANT))
        case 1:
            for start in range(0, len(mine), 10):
                ended = engine.finish(mine[start : start + 10])
                said["finished"] += sum(one.status == "accepted" for one in ended)
        case 2:
            said["rescued"] += engine.rescue().requeued
            ended = engine.retry(mine[: len(mine) // 2], after=HOUR, error="no luck")
            said["retried"] += sum(one.status == "accepted" for one in ended)
        case _:
            for job in mine[:10]:
                said["cancelled"] += _cancel(racer, job.id)
            said["rescued"] += engine.rescue().requeued
    return said


def _cancel(racer: Racer, job_id: str) -> int:
    try:
        return int(racer.onefold.cancel(job_id))
    except WrongState:  # somebody has finished it: that is an answer, too
        return 0


def test_heartbeats_finishes_retries_rescues_and_cancels_of_the_same_rows_agree(
    place: Place, crew: Crew
) -> None:
    for _ in range(repetitions(8, soak=400)):
        with place.open() as onefold:
            ids = _keyed(onefold, 40)
            # Leases that are over already: the rescue may take any of them.
            jobs = onefold.deliveries.take(limit=40, worker="first", lease=INSTANT)
            assert sorted(job.id for job in jobs) == sorted(ids)
            said = sum(values(crew.race(place, speak, jobs)), Counter[str]())
            onefold.deliveries.rescue()
            now = Counter(job.state for job in map(onefold.get, ids) if job is not None)
            # Each delivery ended once: by a finish, a retry, or a rescue; and what was cancelled
            # was cancelled once, in whatever state it was.
            assert now["completed"] == said["finished"]
            assert now["cancelled"] == said["cancelled"]
            assert now["retrying"] == 40 - now["completed"] - now["cancelled"]
            for job in onefold.find(state=["scheduled", "ready", "retrying"], limit=1_000):
                onefold.cancel(job.id)


def bury_or_replay(racer: Racer, ids: list[str]) -> int:
    """Dead letters sent round again by several operators at once, while their keys are wanted."""
    mine = random.Random(racer.rank).sample(ids, len(ids))
    if racer.rank % 2:
        return sum(racer.onefold.replay(job_id).inserted for job_id in mine)
    jobs = [NewJob("race", unique_key=f"key {ids.index(job_id)}") for job_id in mine]
    return racer.onefold.enqueue_many(jobs).inserted


def test_replays_and_enqueues_of_the_same_keys_give_each_key_one_holder(
    place: Place, crew: Crew
) -> None:
    for _ in range(repetitions(8, soak=400)):
        with place.open() as onefold:
            ids = _keyed(onefold, 20)
            jobs = onefold.deliveries.take(limit=20, worker="first", lease=HOUR)
            onefold.deliveries.bury(jobs, reason="for the race")
            won = values(crew.race(place, bury_or_replay, ids))
            assert sum(won) == 20
            queued = onefold.find(state=["scheduled", "ready", "retrying"], limit=1_000)
            assert sorted(job.unique_key or "" for job in queued) == sorted(
                f"key {n}" for n in range(20)
            )
            for job in queued:
                onefold.cancel(job.id)
