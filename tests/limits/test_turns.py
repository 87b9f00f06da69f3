"""More groups than one take visits: each has its turn, and nobody asks in a hurry."""

from datetime import timedelta

from onefold import Job, Limit, NewJob, Onefold
from onefold.operations.limited_take import REST, WINDOW, WINDOWS
from tests.fixtures.place import Place

HOUR = timedelta(hours=1)
SIZE = WINDOW * WINDOWS + 300


def take(onefold: Onefold) -> tuple[list[Job], int | None]:
    taken = onefold.deliveries.take_limited("mine", limit=10_000, worker="w", lease=HOUR)
    return taken.jobs, taken.wait


def test_a_job_in_the_middle_of_many_full_groups_is_found_when_it_is_its_turn(place: Place) -> None:
    names = [f"group {number:04}" for number in range(SIZE)]
    with place.open() as onefold:
        onefold.queues.set_limits("mine", group_limit=Limit(concurrency=1))
        for _ in range(2):
            onefold.enqueue_many([NewJob("race", queue="mine", group_key=name) for name in names])
        running: dict[str | None, Job] = {}
        while len(running) < SIZE:
            jobs, _ = take(onefold)
            assert jobs
            assert running.keys().isdisjoint(job.group_key for job in jobs)
            running.update((job.group_key, job) for job in jobs)

        # All are full: there are more than were visited, so it asks to be asked again, but not
        # at once.
        assert take(onefold) == ([], REST)

        middle = names[SIZE // 2]
        onefold.deliveries.finish([running[middle]])
        found = [job.group_key for _ in range(3) for job in take(onefold)[0]]
        assert found == [middle]


def test_where_all_groups_were_visited_nothing_is_promised(place: Place) -> None:
    names = [f"group {number:03}" for number in range(WINDOW + 50)]
    with place.open() as onefold:
        onefold.queues.set_limits("mine", group_limit=Limit(concurrency=1))
        for _ in range(2):
            onefold.enqueue_many([NewJob("race", queue="mine", group_key=name) for name in names])
        while take(onefold)[0]:
            pass

        assert take(onefold) == ([], None)
