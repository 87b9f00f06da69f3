"""PostgreSQL is restarted, killed, and cut off while workers run: they wait for it, and go on."""

import random
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import proxy
from tests.faults.proxy import Proxy
from tests.fixtures import postgres_keeper
from tests.fixtures.place import Place
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.proof import proved, repetitions
from tests.fixtures.shards import found
from tests.kill import audit
from tests.kill.jobs import enqueue
from tests.kill.workers import Shop, Worker, at_length, opened, until

__all__ = ["proxy"]

ROUNDS = repetitions(1, soak=12)
CUTS = repetitions(6, soak=30)
JOBS = repetitions(160, soak=320)
BLOWS = repetitions(2, soak=3)
"""In each round: each may cost every lease, and five in a row would be poison."""


def under_load(shop: Shop, blow: Callable[[], None], blows: int, **options: Any) -> None:
    """Two workers, and blows at random moments; both live on, and do everything."""
    dice = random.Random()
    workers = two_workers(shop, **options)
    with shop.place.open() as onefold:
        ids = enqueue(onefold, JOBS)
    for left in sorted((dice.randrange(JOBS) for _ in range(blows)), reverse=True):
        until(lambda left=left: audit.unfinished(shop.place) <= left, "for some jobs to end")  # type: ignore[misc]
        blow()
    until(lambda: not audit.unfinished(shop.place), "for all jobs to end")

    for worker in workers:
        worker.stop()
    audit.check(shop.place, shop.ledger, ids)
    shop.clear()


def two_workers(shop: Shop, **options: Any) -> list[Worker]:
    """Both run: a worker that cannot read the database when it starts ends with an error."""
    workers = [shop.start(**options) for _ in range(2)]
    pids = {worker.pid for worker in workers}
    with shop.place.open() as onefold:
        until(lambda: pids <= {one.pid for one in onefold.workers.find()}, "for both workers")
    return workers


@pytest.fixture
def own_shop(own_postgres: PostgresServer, tmp_path: Path) -> Iterator[Shop]:
    """On a server of its own."""
    place = Place(own_postgres.url)
    found(place, 1)
    with opened(place, tmp_path) as shop:
        yield shop


@at_length
@pytest.mark.parametrize(
    "how",
    [*proved(signal.SIGINT), signal.SIGQUIT],
    ids=["restarted", "killed"],
)
def test_workers_outlive_their_server(
    own_shop: Shop, own_postgres: PostgresServer, how: signal.Signals
) -> None:
    def restart() -> None:
        postgres_keeper.stop(own_postgres._folder, how)
        own_postgres.start()

    for _ in range(ROUNDS):
        under_load(own_shop, restart, BLOWS)


@pytest.mark.prove
@at_length
def test_a_restart_costs_idle_workers_no_attempt(
    own_shop: Shop, own_postgres: PostgresServer
) -> None:
    """Their connections are dead, and the first statement of a handler would find that out."""
    ids: list[str] = []
    workers = two_workers(own_shop, lease=timedelta(minutes=10))
    for is_restarted in (False, True):
        if is_restarted:
            own_postgres.stop()
            own_postgres.start()
        with own_shop.place.open() as onefold:
            ids += enqueue(onefold, JOBS // 2)
        until(lambda: not audit.unfinished(own_shop.place), "for all jobs to end")

    for worker in workers:
        worker.stop()
    audit.check(own_shop.place, own_shop.ledger, ids)
    assert {job.attempt for job in audit.jobs(own_shop.place)} == {1}


@pytest.mark.prove
@at_length
def test_workers_outlive_their_connections(postgres_shop: Shop, proxy: Proxy) -> None:
    for _ in range(ROUNDS):
        wire = postgres_shop.place._replace(url=proxy.url)
        under_load(postgres_shop, proxy.cut, CUTS, place=wire)


class Unprepared(Place):
    """Where the wire recognises every take by its text."""

    @property
    def prepared_statements(self) -> bool | None:
        return False


@pytest.mark.prove
@at_length
def test_answers_that_are_lost_are_asked_for_again(postgres_shop: Shop, proxy: Proxy) -> None:
    """The commit went through, and the worker cannot know. No lease ends while the test waits."""
    for _ in range(ROUNDS):
        wire = Unprepared(proxy.url, postgres_shop.place.schema)
        under_load(postgres_shop, proxy.lose_answers, CUTS, place=wire, lease=timedelta(minutes=10))
    assert proxy.lost, "each cut came when all jobs had ended"
