"""Statistics per minute: what has ended, how long it took, what waited, what was suppressed."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import InvalidInput, Job, NewJob, Onefold, StatisticsTotal
from onefold.model.claim import ClaimKey
from onefold.testing.clock import Clock
from onefold.worker import chores
from tests.fixtures.patience import BRIEF
from tests.fixtures.place import Place
from tests.statistics.stage import locked
from tests.worker.stage import perform, until, working

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def taken(onefold: Onefold, clock: Clock, queue: str = "default", **options: Any) -> Job:
    """A job that waited for three seconds and runs for two."""
    onefold.enqueue("work", queue=queue, **options)
    clock.advance(3 * SECOND)
    (job,) = onefold.deliveries.take([queue], worker="w", lease=MINUTE)
    clock.advance(2 * SECOND)
    return job


def sample(onefold: Onefold) -> None:
    onefold.context.runtime.run(chores.sample(onefold.context.shards))


def counts(total: StatisticsTotal) -> tuple[int, ...]:
    return (total.completed, total.retried, total.deferred, total.dead, total.duplicates)


def test_the_end_of_each_delivery_is_counted_with_its_times(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        calls = onefold.deliveries
        calls.acknowledge(taken(onefold, clock, "a").id)
        calls.nack(taken(onefold, clock, "b").id)
        calls.defer_job(taken(onefold, clock, "c").id, after=HOUR)
        calls.nack(taken(onefold, clock, "d").id, retryable=False)
        calls.nack(taken(onefold, clock, "e", max_attempts=1).id)

        read = onefold.statistics.read()

        assert counts(read.total) == (1, 1, 1, 2, 0)
        assert (read.total.waited_mean, read.total.waited_longest) == (3 * SECOND, 3 * SECOND)
        assert (read.total.ran_mean, read.total.ran_longest) == (2 * SECOND, 2 * SECOND)


def test_buckets_are_in_order_and_the_empty_ones_are_included(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        start = clock.now
        onefold.deliveries.acknowledge(taken(onefold, clock).id)
        clock.advance(4 * MINUTE)
        onefold.deliveries.acknowledge(taken(onefold, clock).id)
        onefold.statistics.read()
        clock.advance(MINUTE)

        read = onefold.statistics.read(last=8 * MINUTE, width=MINUTE)
        wide = onefold.statistics.read(last=12 * MINUTE, width=4 * MINUTE)

        assert read.width == MINUTE
        assert [one.at for one in read.buckets] == [start + n * MINUTE for n in range(-2, 6)]
        assert [one.completed for one in read.buckets] == [0, 0, 1, 0, 0, 0, 1, 0]
        assert read.buckets[0].ran_mean is None
        assert [one.at for one in wide.buckets] == [start + n * MINUTE for n in (-6, -2, 2)]
        assert [one.completed for one in wide.buckets] == [0, 1, 1]
        assert onefold.statistics.read(last=MINUTE).total.completed == 0


def test_the_same_minutes_are_counted_in_buckets_of_any_width(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:

        def completed(last: timedelta, *widths: timedelta) -> set[int]:
            read = onefold.statistics.read
            return {read(last=last, width=width).total.completed for width in widths}

        clock.advance(24 * HOUR - 10 * MINUTE)
        onefold.deliveries.acknowledge(taken(onefold, clock).id)
        clock.advance(14 * MINUTE)

        assert completed(15 * MINUTE, MINUTE, 5 * MINUTE, 15 * MINUTE) == {1}
        clock.advance(MINUTE)
        assert completed(15 * MINUTE, MINUTE, 5 * MINUTE, 15 * MINUTE) == {0}
        assert completed(24 * HOUR, MINUTE, 30 * MINUTE, 24 * HOUR) == {1}


def test_suppressed_duplicates_are_counted_before_and_after_the_fold(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        for _ in range(4):
            onefold.enqueue("work", queue="mail", unique_key="k")
        onefold.context.duplicate_log.note(ClaimKey("", "http", "POST /orders", "k"))
        onefold.context.duplicate_log.flush()
        clock.advance(MINUTE)

        before, all_before = onefold.statistics.read(queue="mail"), onefold.statistics.read()
        assert onefold.deliveries.fold() == 4
        after, all_after = onefold.statistics.read(queue="mail"), onefold.statistics.read()

        assert [one.duplicates for one in before.buckets[-2:]] == [3, 0]
        assert (before, all_before) == (after, all_after)
        assert all_after.total.duplicates == 4, "that of a claim belongs to no queue"
        assert onefold.statistics.read(queue="default").total.duplicates == 0


def test_a_sample_has_the_due_jobs_of_all_queues_at_their_highest(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        assert onefold.statistics.read().total.backlog is None
        onefold.enqueue_many([NewJob("work", queue=queue) for queue in "aaabbbaaa"])
        onefold.enqueue("work", queue="a", delay=HOUR)
        sample(onefold)
        onefold.deliveries.take(["a"], limit=4, worker="w", lease=MINUTE)
        sample(onefold)
        clock.advance(MINUTE)
        sample(onefold)
        onefold.deliveries.take(["b"], limit=3, worker="w", lease=MINUTE)

        read = onefold.statistics.read()

        assert [one.backlog for one in read.buckets[-3:]] == [None, 9, 5]
        assert read.total.backlog == 9
        assert onefold.statistics.read(queue="a").total.backlog == 6


def test_a_tenant_sees_its_own_queues_only(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        for queue in ("{acme}mail", "{acme}other", "{acme2}mail", "mail"):
            onefold.deliveries.acknowledge(taken(onefold, clock, queue).id)
        acme = onefold.tenant("acme")

        assert onefold.statistics.read().total.completed == 4
        assert onefold.statistics.read(queue="{acme}mail").total.completed == 1
        assert acme.statistics.read().total.completed == 2
        assert acme.statistics.read(queue="mail").total.completed == 1
        with pytest.raises(InvalidInput):
            acme.statistics.read(queue="{acme2}mail")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"width": 90 * SECOND}, "width"),
        ({"width": timedelta(0)}, "width"),
        ({"last": timedelta(0)}, "last"),
        ({"last": 25 * HOUR, "width": HOUR}, "last"),
        ({"last": 15 * MINUTE, "width": 10 * MINUTE}, "last"),
        ({"queue": ""}, "queue"),
    ],
)
def test_a_time_that_cannot_be_read_is_rejected(
    place: Place, options: dict[str, Any], field: str
) -> None:
    with place.open() as onefold, pytest.raises(InvalidInput) as caught:
        onefold.statistics.read(**options)
    assert caught.value.field == field


def test_statistics_older_than_a_day_are_deleted_by_the_prune(spread: Place) -> None:
    clock = Clock()
    with spread.open(clock=clock) as onefold:
        onefold.deliveries.acknowledge(taken(onefold, clock).id)
        onefold.statistics.read()
        clock.advance(24 * HOUR)
        onefold.deliveries.prune()
        assert spread.rows("select count(*) from {statistic}") == [(1,)]
        clock.advance(2 * HOUR)
        onefold.deliveries.prune()
        assert spread.rows("select count(*) from {statistic}") == [(0,)]


def test_a_bucket_that_a_clock_ahead_has_made_is_left_out(place: Place) -> None:
    clock = Clock()
    ahead = Clock(clock.now + HOUR)
    with place.open(clock=clock) as onefold, place.open(clock=ahead) as other:
        other.deliveries.acknowledge(taken(other, ahead).id)
        other.statistics.read()

        assert onefold.statistics.read().total.completed == 0


def test_a_worker_counts_what_it_ends_and_writes_it_when_it_stops(spread: Place) -> None:
    with spread.open() as onefold:
        ended: list[int] = []

        @onefold.job(max_attempts=1)
        def work(number: int) -> None:
            ended.append(number)
            if number == 3:
                raise ValueError("three")

        async def play() -> None:
            for number in range(5):
                await work.aenqueue(number)
            async with working(onefold):
                await until(lambda: len(ended) == 5)

        perform(play, onefold)
    with spread.open() as other:
        total = other.statistics.read(last=2 * MINUTE).total
        assert counts(total) == (4, 0, 0, 1, 0)
        assert total.waited_mean is not None
        assert total.ran_longest is not None


def test_a_worker_writes_its_counts_while_it_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.worker.statistics.WRITTEN", 0.01)
    with place.open() as onefold:

        @onefold.job
        async def work() -> None: ...

        async def play() -> None:
            await work.aenqueue()
            async with working(onefold):
                await until(lambda: place.rows("select sum(completed) from {statistic}")[0][0])

        perform(play, onefold)


def test_a_report_writes_the_counts_that_have_waited(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.worker.statistics.WRITTEN", 0.0)
    clock = Clock()
    with place.open(clock=clock) as onefold:
        onefold.deliveries.acknowledge(taken(onefold, clock).id)

        assert place.rows("select completed from {statistic}") == [(1,)]


def test_a_rescued_job_is_counted_by_the_worker_that_rescues_it(place: Place) -> None:
    with place.open() as onefold:
        onefold.enqueue("work", queue="other")
        lease = timedelta(milliseconds=1)
        onefold.deliveries.take(["other"], worker="killed", lease=lease)

        async def play() -> None:
            async with working(onefold) as worker:
                await worker.rescue()

        perform(play, onefold)
    with place.open() as other:
        total = other.statistics.read(last=2 * MINUTE).total
        assert counts(total) == (0, 1, 0, 0, 0)
        assert total.ran_mean is None


def test_statistics_that_cannot_be_written_are_lost_and_nothing_else(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with place.open(clock=clock, busy_timeout=BRIEF) as onefold:
        onefold.deliveries.acknowledge(taken(onefold, clock).id)
        with locked(place, "statistic"):
            onefold.context.runtime.run(onefold.context.counts.write())

    assert "The statistics of the last seconds are lost" in caplog.text


def test_a_forked_child_does_not_write_the_counts_of_its_parent(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with place.open(clock=clock) as onefold:
        onefold.context.counts.count("default", "completed")
        monkeypatch.setattr("onefold.worker.statistics.os.getpid", lambda: -1)
        assert onefold.statistics.read().total.completed == 0
        onefold.context.counts.count("default", "completed")
        monkeypatch.undo()
        onefold.context.counts.count("default", "dead")
        assert counts(onefold.statistics.read().total) == (0, 0, 0, 1, 0)
