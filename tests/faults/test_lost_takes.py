"""A take whose answer is lost leaves no job leased to a worker that does not know of it."""

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest

from onefold import Limit, NewJob, Onefold, Run
from onefold.model.ids import shard_of
from onefold.worker.settings import WorkerOptions
from tests.faults.callers import MakeCaller
from tests.faults.proxy import Proxy
from tests.faults.servers import PATIENCE, reached, state_of
from tests.fixtures.patience import LOCK
from tests.fixtures.place import Place
from tests.fixtures.shards import SHARDS, found

LEASE = timedelta(minutes=10)
"""Longer than any test waits: a job that stays leased to no worker is not run again."""
JOBS = 4
MANY = 16
ONE_BY_ONE: WorkerOptions = {"concurrency": 1, "prefetch": 0, "lease": LEASE, "chores": False}


@pytest.fixture(params=[1, SHARDS], ids=["one shard", "shards"])
def place(request: pytest.FixtureRequest, postgres_url: str, postgres_schema: str) -> Place:
    place = Place(postgres_url, postgres_schema)
    found(place, request.param)
    return place


class Gate:
    """A handler that waits: while it does, a worker for one job at a time takes no other."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._open = threading.Event()

    def guards(self, onefold: Onefold) -> None:
        @onefold.job
        def work(run: Run) -> None:
            self.begun.append(run.id)
            assert self._open.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()

    async def is_reached(self) -> None:
        await reached(lambda: self.begun)


def behind(proxy: Proxy, place: Place, *, patience: timedelta = LOCK) -> Onefold:
    """On the wire. A statement that is prepared cannot be recognised there."""
    onefold = Onefold(
        proxy.url, schema=place.schema, prepared_statements=False, busy_timeout=patience
    )
    onefold.queues.declare("limited", limit=Limit(concurrency=3))
    return onefold


@pytest.mark.parametrize("queue", ["plain", "limited"])
def test_a_take_that_is_sent_again_hands_back_what_the_first_has_leased(
    place: Place, proxy: Proxy, make_caller: MakeCaller, queue: str
) -> None:
    caller = make_caller(behind(proxy, place))
    caller("enqueue_many", [NewJob("work", queue=queue) for _ in range(JOBS)])

    def take() -> list[Any]:
        if queue == "plain":
            return list(caller("deliveries.take", [queue], worker="w", lease=LEASE))
        return list(caller("deliveries.take_limited", queue, worker="w", lease=LEASE).jobs)

    before = take()
    proxy.lose_answers()
    taken = take()

    assert proxy.lost == 1
    jobs = caller("find")
    running = {job.id for job in jobs if job.state == "running"}
    assert running == {job.id for job in before + taken}
    assert sorted(job.attempt for job in jobs) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("place", "queue"),
    [(1, "plain"), (1, "limited"), (SHARDS, "plain")],
    ids=["plain", "limited", "shards"],
    indirect=["place"],
)
async def test_a_worker_hands_back_what_a_take_that_failed_has_leased(
    place: Place, proxy: Proxy, caplog: pytest.LogCaptureFixture, queue: str
) -> None:
    caplog.set_level(logging.INFO, "onefold.worker")
    gate = Gate()

    options: WorkerOptions = {**ONE_BY_ONE, "queues": [queue]}

    with place.open() as other:
        async with behind(proxy, place, patience=timedelta(seconds=1)) as onefold:
            gate.guards(onefold)
            async with onefold.worker(**options):
                other.enqueue("work", queue=queue, max_attempts=1)
                await gate.is_reached()
                fill(other, queue)
                # A queue with limits: the take that finds jobs is the one in a transaction. With
                # several shards, the finish is apart; it does not have the name of the queue.
                proxy.hang_up(
                    only_transactions=queue == "limited",
                    only_with=queue if queue == "plain" else "",
                )
                gate.open()
                await reached(lambda: proxy.refuses)
                caplog.clear()
                await reached(lambda: "database is not available" in caplog.text)
                assert "running" in {job.state for job in other.find()}
                proxy.pick_up()
                await reached(lambda: _are_completed(other))
        assert {job.attempt for job in other.find()} == {1}
    assert proxy.lost == 1
    # From a queue with limits, the take travels beside the finish, and may have an answer yet.
    assert "handed back" in caplog.text or queue == "limited"
    assert len(gate.begun) == len(set(gate.begun)) == MANY + 1


async def test_a_worker_that_stops_hands_back_first(
    postgres_place: Place, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    options: WorkerOptions = {**ONE_BY_ONE, "queues": ["plain"]}

    with postgres_place.open() as other:
        async with behind(proxy, postgres_place, patience=timedelta(seconds=1)) as onefold:
            gate.guards(onefold)
            async with onefold.worker(**options) as worker:
                other.enqueue("work", queue="plain", max_attempts=1)
                await gate.is_reached()
                other.enqueue("work", queue="plain", max_attempts=1)
                # The name of the queue: neither a look nor a finish is meant.
                proxy.hang_up(only_with="plain")
                gate.open()
                await reached(lambda: proxy.refuses)
                worker.stop()
                await reached(lambda: "database is not available" in caplog.text)
                assert "running" in {job.state for job in other.find()}
                proxy.pick_up()
        ended = sorted((job.state, job.attempt) for job in other.find())
        assert ended == [("completed", 1), ("ready", 0)]
    assert (proxy.lost, len(gate.begun)) == (1, 1)


async def test_a_take_that_the_server_comes_to_later_is_handed_back_too(
    postgres_place: Place, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Only its own jobs: those of the take that was sent instead are running."""
    caplog.set_level(logging.INFO, "onefold.worker")
    gate = Gate()

    with postgres_place.open() as other:
        async with behind(proxy, postgres_place) as onefold:
            gate.guards(onefold)
            async with onefold.worker(**ONE_BY_ONE):
                proxy.swallow_commit()
                first = other.enqueue("work")
                await gate.is_reached()
                other.enqueue("work")
                proxy.deliver_swallowed()
                await reached(lambda: "handed back" in caplog.text)
                running = [job.id for job in other.find() if job.state == "running"]
                assert running == [first.id]
                gate.open()
                await reached(lambda: _are_completed(other))
        assert {job.attempt for job in other.find()} == {1}
    assert len(gate.begun) == len(set(gate.begun)) == 2


async def test_two_workers_of_one_name_leave_each_other_alone(
    postgres_place: Place, proxy: Proxy
) -> None:
    gate = Gate()

    with postgres_place.open() as other:
        async with behind(proxy, postgres_place) as onefold:
            gate.guards(other)
            onefold.job(work)
            twin: WorkerOptions = {**ONE_BY_ONE, "name": "twin"}
            same: WorkerOptions = {**twin, "queues": ["held"]}
            async with other.worker(**same), onefold.worker(**twin):
                held = other.enqueue("work", queue="held")
                await gate.is_reached()
                proxy.lose_answers()
                lost = other.enqueue("work")
                await reached(lambda: state_of(other, lost.id) == "completed")
                assert state_of(other, held.id) == "running"
                gate.open()
                await reached(lambda: _are_completed(other))
        assert {job.attempt for job in other.find()} == {1}
    assert (proxy.lost, len(gate.begun)) == (1, 1)


def work() -> None:
    """At once."""


def fill(onefold: Onefold, queue: str) -> None:
    """Store jobs on every shard: a take from any of them brings one."""
    keys = [f"{number}" for number in range(MANY)]
    stored = onefold.enqueue_many(
        [NewJob("work", queue=queue, max_attempts=1, unique_key=key) for key in keys]
    )
    assert {shard_of(job.id, SHARDS) for job in stored} == set(range(SHARDS))


def _are_completed(onefold: Onefold) -> bool:
    return {job.state for job in onefold.find()} == {"completed"}
