"""Four shards of which one fails: the others go on, and nothing is lost or done twice."""

import asyncio
import logging
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from onefold import Job, NewJob, Onefold
from onefold.model.ids import shard_of
from tests.fixtures.place import Place
from tests.fixtures.shards import SHARDS, empty, found, spread
from tests.worker.stage import HELD, perform, until, working

__all__ = ["empty", "spread"]

BAD = 2
EACH = 12


@pytest.fixture
def four(postgres_url: str, postgres_schema: str) -> Place:
    """Four shards on PostgreSQL."""
    place = Place(postgres_url, postgres_schema)
    found(place, SHARDS)
    return place


@contextmanager
def failing(place: Place, condition: str = "true") -> Generator[None]:
    """Have every change of a job of the bad shard fail, if the condition holds."""
    name = f"{place.schema}.fail"
    with place.connection() as connection:
        connection.execute(
            f"create or replace function {name}() returns trigger language plpgsql as"
            " $$ begin raise exception 'this shard is away'; end $$"
        )
        connection.execute(
            f"create trigger fail before update on {place.schema}.job for each row"
            f" when (old.shard = {BAD} and ({condition})) execute function {name}()"
        )
        try:
            yield
        finally:
            connection.execute(f"drop trigger fail on {place.schema}.job")


def fill(onefold: Onefold, kind: str) -> dict[str, int]:
    """Store jobs until every shard has some; the shard of each."""
    jobs: dict[str, int] = {}
    number = 0
    while min(Counter(jobs.values()).get(shard, 0) for shard in range(SHARDS)) < EACH:
        batch = [NewJob(kind, {"n": number + n}, unique_key=f"{number + n}") for n in range(EACH)]
        number += EACH
        for stored in onefold.enqueue_many(batch):
            jobs[stored.id] = shard_of(stored.id, SHARDS)
    return jobs


def states(place: Place) -> dict[str, int]:
    return {str(job_id): state for job_id, state in place.rows("select id, state from {job}")}


@pytest.mark.parametrize("fault", ["takes", "reports"])
def test_other_shards_go_on_and_the_jobs_of_the_bad_one_run_later(
    four: Place, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    caplog.set_level(logging.INFO, "onefold.worker")
    ran: Counter[str] = Counter()
    with four.open() as onefold:

        @onefold.job
        async def work(n: int) -> None:
            ran[f"{n}"] += 1

        jobs = fill(onefold, work.kind)
        condition = "new.state = 1" if fault == "takes" else "new.state = 2"

        def done(*, bad: bool) -> bool:
            now = states(four)
            return all(now[i] == 2 for i, shard in jobs.items() if bad or shard != BAD)

        async def play() -> None:
            async with working(onefold, concurrency=8):
                with failing(four, condition):
                    await until(lambda: done(bad=False))
                    here = [state for i, state in states(four).items() if jobs[i] == BAD]
                    assert 2 not in here
                    # New jobs of the other shards still run.
                    more = await asyncio.to_thread(fill_more, onefold, work.kind)
                    jobs.update(more)
                    await until(lambda: done(bad=False))
                await until(lambda: done(bad=True))

        perform(play, onefold)
        assert set(ran.values()) == {1}
        assert len(ran) == len(jobs)
        fences = {fence for (fence,) in four.rows("select fence from {job}")}
        assert fences == {1}
    lines = [record.getMessage() for record in caplog.records if "Shard" in record.getMessage()]
    assert [line.split(" (")[0] for line in lines] == ["Shard 2 fails", "Shard 2 works again."]


def fill_more(onefold: Onefold, kind: str) -> dict[str, int]:
    batch = [NewJob(kind, {"n": 10_000 + n}, unique_key=f"more {n}") for n in range(EACH)]
    return {stored.id: shard_of(stored.id, SHARDS) for stored in onefold.enqueue_many(batch)}


def test_jobs_of_other_shards_run_while_the_rows_of_one_are_locked(four: Place) -> None:
    ran: Counter[int] = Counter()
    with four.open() as onefold, four.connection() as other:

        @onefold.job
        async def work(n: int) -> None:
            ran[n] += 1

        jobs = fill(onefold, work.kind)
        other.execute("begin")
        other.execute(f"select from {four.schema}.job where shard = {BAD} for update")

        async def play() -> None:
            async with working(onefold, concurrency=8):
                free = [job_id for job_id, shard in jobs.items() if shard != BAD]
                await until(lambda: all(states(four)[job_id] == 2 for job_id in free))
                assert all(states(four)[i] == 0 for i, shard in jobs.items() if shard == BAD)
                other.execute("rollback")
                await until(lambda: set(states(four).values()) == {2})

        perform(play, onefold)
        assert set(ran.values()) == {1}


def test_heartbeats_of_other_shards_go_on(four: Place) -> None:
    with four.open() as onefold:
        may_end = asyncio.Event()

        @onefold.job
        async def slow(n: int) -> None:
            await may_end.wait()

        jobs = fill(onefold, slow.kind)

        def leases() -> dict[int, int]:
            return dict(
                four.rows("select shard, min(lease_until) from {job} where state = 1 group by 1")
            )

        async def play() -> None:
            async with working(onefold, concurrency=len(jobs), chores=False, **HELD):
                await until(lambda: len(leases()) == SHARDS and not due(four))
                with failing(four):
                    first = leases()

                    def extended() -> bool:
                        now = leases()
                        return all(now[shard] > first[shard] + 500_000 for shard in others)

                    others = set(range(SHARDS)) - {BAD}
                    await until(extended)
                    assert leases()[BAD] == first[BAD]
                await until(lambda: leases()[BAD] > first[BAD])
                may_end.set()
                await until(lambda: set(states(four).values()) == {2})

        perform(play, onefold)
        assert {fence for (fence,) in four.rows("select fence from {job}")} == {1}


def due(place: Place) -> bool:
    return bool(place.rows("select 1 from {job} where state = 0"))


def test_calls_visit_the_other_shards_and_then_report_the_error(four: Place) -> None:
    with four.open() as onefold:
        jobs = fill(onefold, "work")
        calls = onefold.deliveries
        with failing(four):
            taken = calls.take(limit=1_000, worker="w", lease=timedelta(minutes=1))
            assert {jobs[job.id] for job in taken} == set(range(SHARDS)) - {BAD}
        with failing(four, "new.state = 2"):
            on_bad = take_bad(onefold)
            with pytest.raises(Exception, match="this shard is away"):
                calls.finish([*taken, *on_bad])
            finished = {job_id for job_id, state in states(four).items() if state == 2}
            assert finished == {job.id for job in taken}
        ended = calls.finish([*taken, *on_bad])
        assert Counter(item.status for item in ended) == {
            "already": len(taken),
            "accepted": len(on_bad),
        }


def take_bad(onefold: Onefold) -> list[Job]:
    """The jobs of the bad shard: it is tried again after a second."""
    while True:
        taken = onefold.deliveries.take(limit=1_000, worker="w", lease=timedelta(minutes=1))
        if taken:
            return taken


def test_a_rescue_visits_the_other_shards(four: Place) -> None:
    with four.open() as onefold:
        jobs = fill(onefold, "work")
        taken = onefold.deliveries.take(limit=1_000, worker="w", lease=timedelta(microseconds=1))
        assert len(taken) == len(jobs)
        with failing(four):
            rescued = onefold.deliveries.rescue()
        assert rescued.requeued == sum(shard != BAD for shard in jobs.values())
