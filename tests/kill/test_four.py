"""Four worker processes at once: every tick of a schedule has one job, and no other."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from onefold import Onefold, Run
from tests.cron.due import set_next_tick
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.kill import audit
from tests.kill.deaths import NEVER, Death
from tests.kill.jobs import AT_ONCE, Scene
from tests.kill.ledger import Ledger
from tests.kill.workers import LEASE, Shop, Worker, at_length, until

WORKERS = 4
ROUNDS = repetitions(1, soak=40)
DAYS = repetitions(60, soak=200)


def work_by_the_clock(place: Place, ledger: Ledger, death: Death) -> None:
    """The life of a worker that has a schedule to look after."""
    with place.open() as onefold:
        declare_tick(onefold, Scene(place, ledger, death))
        death.arm(onefold)
        onefold.run_worker(lease=LEASE, poll=LEASE / 5, concurrency=4)


def declare_tick(onefold: Onefold, scene: Scene) -> None:
    @onefold.cron("0 0 * * *", catch_up="all", catch_up_most=1_000)
    @onefold.job(max_attempts=100, backoff=AT_ONCE)
    def tick(run: Run) -> None:
        with run.transaction() as tx:
            tx.execute(scene.row(run))


@pytest.mark.prove
@at_length
def test_every_tick_has_one_job_and_one_effect_whoever_dies(shop: Shop) -> None:
    place, dice = shop.place, random.Random()
    with place.open() as onefold:
        declare_tick(onefold, Scene(place, shop.ledger, NEVER))
        onefold.schedules.store_declared()
    for _ in range(ROUNDS):
        start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        start -= timedelta(days=DAYS)
        set_next_tick(place, start)

        deaths = [Death(number=dice.randrange(1, 150)) for _ in range(WORKERS)]
        for worker in [work_for(shop, death) for death in deaths]:
            until(lambda worker=worker: not worker.is_alive or _is_done(place), "for a death")  # type: ignore[misc]
            worker.end()
        healthy = [work_for(shop, NEVER) for _ in range(WORKERS)]
        until(lambda: _is_done(place), "for all ticks to have been run")
        for worker in healthy:
            worker.stop()

        check_ticks(place, start)
        shop.clear()


def work_for(shop: Shop, death: Death) -> Worker:
    return shop.hire(work_by_the_clock, shop.place, shop.ledger, death)


def check_ticks(place: Place, start: datetime) -> None:
    """One job for each tick, and one row for each job, by the delivery that completed it."""
    with place.open() as onefold:
        (schedule,) = onefold.schedules.find()
        ticks = Counter(job.tick for job in onefold.find(limit=10_000))
    assert schedule.last_tick is not None
    days = (schedule.last_tick - start).days + 1
    assert days >= DAYS
    assert ticks == dict.fromkeys((start + n * timedelta(days=1) for n in range(days)), 1)
    rows = place.rows("select job_id, fence from {effects}", effects=place.effects)
    assert sorted(rows) == sorted((job.id, job.fence) for job in audit.jobs(place))


def _is_done(place: Place) -> bool:
    now = int(datetime.now(UTC).timestamp() * 1_000_000)
    due = place.rows(f"select count(*) from {{schedule}} where next_tick <= {now}")
    return due == [(0,)] and not audit.unfinished(place)
