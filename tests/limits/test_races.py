"""Four processes that take at once: no limit is ever exceeded, no order broken, no job forgotten.

Each looks at the database itself, in the middle of the others' work: what it counts there is what
was committed.
"""

from collections import Counter
from datetime import timedelta
from typing import Any, Final

import pytest

from onefold import Limit, NewJob, Onefold
from onefold.model.ids import enqueue_order
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.race.crew import Crew, Racer, values

HOUR: Final = timedelta(hours=1)
GROUPS: Final = 5
RUNNING: Final = "select group_key, count(*) from {job} where state = 1 group by group_key"


def work_until_empty(racer: Racer, size: int) -> list[Any]:
    """Take under the limits, see what is running, finish; the most that was seen, and what ran."""
    engine = racer.onefold.deliveries
    ran: list[tuple[str, str | None]] = []
    most, most_of_group = 0, 0
    with racer.place.connection() as connection:
        while True:
            taken = engine.take_limited("mine", limit=size, worker="w", lease=HOUR).jobs
            running = _running(racer.place, connection)
            most = max(most, sum(running.values()))
            most_of_group = max(most_of_group, *(running[group] for group in running if group), 0)
            ran += [(job.id, job.group_key) for job in taken]
            engine.finish(taken)
            if not taken and _is_done(racer.place, connection):
                return [ran, most, most_of_group]


def _running(place: Place, connection: Any) -> Counter[str | None]:
    rows = connection.execute(RUNNING.format(job=place.table("job"))).fetchall()
    return Counter(dict(rows))


def _is_done(place: Place, connection: Any) -> bool:
    left = f"select count(*) from {place.table('job')} where state in (0, 1)"
    return bool(connection.execute(left).fetchone()[0] == 0)


def fill(onefold: Onefold, count: int) -> list[str]:
    """So many jobs of some groups and of none, on all shards."""
    jobs = [
        NewJob("race", queue="mine", group_key=None if n % 6 == GROUPS else f"group {n % 6}",
               priority=n % 3, unique_key=f"race {n}")
        for n in range(count)
    ]  # fmt: skip
    return [answer.id for answer in onefold.enqueue_many(jobs)]


@pytest.mark.parametrize("limited", [True, False], ids=["limited", "free"])
def test_no_limit_is_exceeded_and_every_job_runs_once(
    raced: Place, crew: Crew, *, limited: bool
) -> None:
    with raced.open() as onefold:
        if limited:
            onefold.queues.set_limits(
                "mine", limit=Limit(concurrency=7), group_limit=Limit(concurrency=2)
            )
        ids = fill(onefold, repetitions(150, soak=5_000))

    answers = values(crew.race(raced, work_until_empty, 5))

    if limited:
        assert max(answer[1] for answer in answers) <= 7
        assert max(answer[2] for answer in answers) <= 2
    assert sorted(job_id for answer in answers for job_id, _ in answer[0]) == sorted(ids)


def test_an_ordered_group_runs_one_at_a_time_and_in_order(raced: Place, crew: Crew) -> None:
    with raced.open() as onefold:
        onefold.queues.set_limits("mine", ordered=True)
        ids = fill(onefold, repetitions(90, soak=3_000))

    answers = values(crew.race(raced, work_until_empty, 4))

    assert max(answer[2] for answer in answers) <= 1
    assert sorted(job_id for answer in answers for job_id, _ in answer[0]) == sorted(ids)
    taken = raced.rows("select group_key, taken_at, id from {job} where group_key is not null")
    for group in {row[0] for row in taken}:
        ran = [str(row[2]) for row in sorted(row for row in taken if row[0] == group)]
        assert ran == sorted(ran, key=enqueue_order)


def test_a_rate_is_spent_once(raced: Place, crew: Crew) -> None:
    with raced.open() as onefold:
        onefold.queues.set_limits("mine", limit=Limit(rate="20/d"), group_limit=Limit(rate="3/d"))
        fill(onefold, 120)

    answers = values(crew.race(raced, take_some))

    taken = [group for answer in answers for group in answer]
    of_group = Counter(group for group in taken if group is not None)
    assert len(taken) == 20
    assert all(count <= 3 for count in of_group.values())


def take_some(racer: Racer) -> list[str | None]:
    """Take again and again, though there is nothing more to be had."""
    taken: list[str | None] = []
    for _ in range(12):
        jobs = racer.onefold.deliveries.take_limited("mine", limit=4, worker="w", lease=HOUR).jobs
        taken += [job.group_key for job in jobs]
        racer.onefold.deliveries.finish(jobs)
    return taken


def change_and_work(racer: Racer) -> list[Any]:
    """One is the operator, who changes the limits all the time; the others work."""
    if racer.rank == 0:
        for limit in (3, 1, 2, 3, 1) * 3:
            racer.onefold.queues.pause("mine")
            racer.onefold.queues.set_limits("mine", limit=Limit(concurrency=limit))
            racer.onefold.queues.resume("mine")
        return [[], 0, 0]
    return work_until_empty(racer, 5)


def test_limits_that_change_all_the_time_lose_no_job(raced: Place, crew: Crew) -> None:
    with raced.open() as onefold:
        onefold.queues.set_limits("mine", limit=Limit(concurrency=3))
        ids = fill(onefold, repetitions(90, soak=3_000))

    answers = values(crew.race(raced, change_and_work))

    # Never more than the loosest of the limits.
    assert max(answer[1] for answer in answers) <= 3
    assert sorted(job_id for answer in answers for job_id, _ in answer[0]) == sorted(ids)
