"""A worker begins its takes behind the jobs that it has taken. What comes late is found, too."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest

from onefold import NewJob, Onefold
from onefold.model.delivery import TakeOrder
from onefold.model.job import JobRow
from onefold.model.places import Places
from onefold.operations import deliveries
from onefold.worker import queue_monitor
from tests.fixtures.patience import HANG, until
from tests.fixtures.place import Place
from tests.worker.stage import ended, perform, working

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LEASE = 60_000_000


async def test_a_job_that_is_older_than_the_last_one_is_run(onefold: Onefold) -> None:
    @onefold.job
    async def work() -> None:
        """It is done."""

    async with working(onefold, poll=timedelta(hours=1), chores=False):
        await ended(onefold, (await work.using(run_at=LONG_AGO).aenqueue()).id)
        older = work.using(run_at=LONG_AGO - timedelta(days=1))
        await ended(onefold, (await older.aenqueue()).id)


async def test_an_older_job_is_run_beside_a_worker_that_always_finds_others(
    onefold: Onefold,
) -> None:
    ran = asyncio.Event()

    @onefold.job
    async def endless() -> None:
        if not ran.is_set():
            await endless.using(run_at=LONG_AGO).aenqueue()

    @onefold.job
    async def older() -> None:
        ran.set()

    for _ in range(20):
        await endless.using(run_at=LONG_AGO).aenqueue()
    async with working(onefold, concurrency=4):
        late = older.using(run_at=LONG_AGO - timedelta(days=1))
        await ended(onefold, (await late.aenqueue()).id)


def test_a_take_behind_the_last_job_keeps_the_order_of_priorities(onefold: Onefold) -> None:
    onefold.migrate()
    places = Places()
    for priority in (3, 5):
        onefold.enqueue("work", priority=priority, run_at=LONG_AGO)
    taken(onefold, places, 2)
    for priority in (9, 5, 4, 3, 1):
        onefold.enqueue("work", priority=priority)

    assert [job.priority for job in taken(onefold, places, 3)] == [1, 3, 4]
    assert [job.priority for job in taken(onefold, places, 3)] == [5, 9]


def taken(onefold: Onefold, places: Places, limit: int) -> list[JobRow]:
    order = TakeOrder({"default": limit}, limit, "w", LEASE, places=places)
    jobs = onefold.context.store.transact(partial(deliveries.take, order=order))
    places.pass_by(jobs, () if len(jobs) == limit else ("default",), 1)
    return jobs


def test_a_worker_beside_an_open_transaction_reads_what_it_takes(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all that was taken since the transaction began, again and again."""
    monkeypatch.setattr(queue_monitor, "WHOLE", HANG)
    number, done = 2_000, asyncio.Event()
    with psycopg.connect(postgres_place.url) as dump:
        dump.execute("set transaction isolation level repeatable read")
        dump.execute("select 1")
        with postgres_place.open(name="reader") as onefold:

            @onefold.job
            async def work(item: int) -> None:
                if item == number - 1:
                    done.set()

            async def play() -> None:
                for item in range(0, number, 500):
                    await onefold.aenqueue_many(
                        [
                            NewJob(work.kind, {"item": item + n}, run_at=LONG_AGO, priority=n % 2)
                            for n in range(500)
                        ]
                    )
                async with working(onefold, concurrency=10):
                    await done.wait()

            perform(play, onefold)
        read = entries_read(postgres_place)

    assert read < 5 * number


def entries_read(place: Place) -> int:
    """Entries of `job_ready` that were read by the sessions of `reader`, when they have ended."""
    with psycopg.connect(place.url, autocommit=True) as connection:
        sessions = "select from pg_stat_activity where application_name = 'reader'"
        until(lambda: connection.execute(sessions).fetchone() is None, "the sessions end")
        row = connection.execute(
            "select idx_tup_read from pg_stat_user_indexes"
            " where schemaname = %s and indexrelname = 'job_ready'",
            [place.schema],
        ).fetchone()
    assert row is not None
    return int(row[0])
