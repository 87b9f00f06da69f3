"""Workers that come back when their jobs are somebody else's: nothing that they say counts."""

import signal
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onefold import NewJob
from tests.kill import audit
from tests.kill.deaths import FINISH, Death
from tests.kill.jobs import AT_ONCE, EXACT, KEPT, KINDS, enqueue
from tests.kill.workers import Shop, Worker, until

COUNT = len(KINDS)
LONG = timedelta(hours=1)
MANY = 100


@pytest.mark.prove
def test_a_worker_that_was_stopped_past_its_leases_finishes_nothing(
    shop: Shop, tmp_path: Path
) -> None:
    stop_and_wake_up(shop, Death("began", tmp_path / "gate"))


@pytest.mark.prove
def test_not_even_in_the_middle_of_its_transactions(postgres_shop: Shop, tmp_path: Path) -> None:
    stop_and_wake_up(postgres_shop, Death("inside", tmp_path / "gate"))


def stop_and_wake_up(shop: Shop, hold: Death) -> None:
    """Stop a worker that has begun all jobs, have another do them, and let the first go on."""
    ids, stopped = _begin(shop, hold, name="stopped", chores=False)

    stop(shop, stopped)
    shop.drain(name="healthy")
    hold.open_gate()
    stopped.signal(signal.SIGCONT)
    stopped.stop()

    audit.check(shop.place, shop.ledger, ids)
    assert _finished_by(shop) == {"healthy": COUNT}


def stop(shop: Shop, worker: Worker) -> None:
    """Stop a process; if it has SQLite's only lock just then, a moment later."""
    worker.signal(signal.SIGSTOP)
    while not shop.can_write():
        worker.signal(signal.SIGCONT)
        worker.signal(signal.SIGSTOP)


def test_of_two_workers_with_one_job_the_first_is_told_that_it_is_lost(
    shop: Shop, tmp_path: Path
) -> None:
    lose_and_go_on(shop, Death("began", tmp_path / "gate"))


@pytest.mark.prove
def test_also_in_the_middle_of_its_transaction(postgres_shop: Shop, tmp_path: Path) -> None:
    lose_and_go_on(postgres_shop, Death("inside", tmp_path / "gate"))


def lose_and_go_on(shop: Shop, hold: Death) -> None:
    """The heart of the first beats four times an hour: only what it does itself can tell it."""
    ids, first = _begin(shop, hold, name="first", lease=LONG, chores=False)

    shop.end_leases()
    shop.drain(name="second")
    hold.open_gate()
    first.stop()

    audit.check(shop.place, shop.ledger, ids)
    assert _finished_by(shop) == {"second": COUNT}
    refused = {line.job_id: line.value for line in shop.ledger.lines("raised")}
    exact = {job.id for job in audit.jobs(shop.place) if job.kind in EXACT}
    assert {job_id: refused.get(job_id) for job_id in exact} == dict.fromkeys(exact, "LeaseLost")


@pytest.mark.prove
def test_a_stopped_worker_that_keeps_everybody_from_writing_goes_on_where_it_was(
    sqlite_shop: Shop, tmp_path: Path
) -> None:
    """Nobody could take its job meanwhile: its fence is the newest still, whatever the time."""
    shop, hold = sqlite_shop, Death("inside", tmp_path / "gate")
    with shop.place.open() as onefold:
        (job_id,) = enqueue(onefold, 1)
    stopped = shop.start(hold, name="stopped")
    until(lambda: shop.ledger.count("waiting"), "for the transaction to begin")

    stopped.signal(signal.SIGSTOP)
    other = shop.start(name="other")
    until(lambda: not shop.has_lease("stopped"), "for the lease to end")
    hold.open_gate()
    stopped.signal(signal.SIGCONT)
    until(lambda: not audit.unfinished(shop.place), "for the job to end")
    for worker in (stopped, other):
        worker.stop()

    audit.check(shop.place, shop.ledger, [job_id])


@pytest.mark.prove
def test_a_worker_frozen_in_the_middle_of_a_finish_keeps_nobody_from_its_jobs(
    postgres_shop: Shop, tmp_path: Path
) -> None:
    """It has their rows, until the server gives up on it."""
    shop, frozen = postgres_shop, tmp_path / "frozen"
    with shop.place.open() as onefold:
        jobs = [NewJob("aping", retention=KEPT, backoff=AT_ONCE) for _ in range(COUNT)]
        ids = [answer.id for answer in onefold.enqueue_many(jobs)]
    freeze = Death(statement=FINISH, inside=True, frozen=frozen)
    worker = shop.start(freeze, lease=LONG, chores=False)
    until(frozen.exists, "for the worker to stand still")

    shop.end_leases()
    shop.drain()
    worker.signal(signal.SIGCONT)
    worker.stop()

    audit.check(shop.place, shop.ledger, ids)


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["ping", "aping"])
def test_a_worker_that_was_frozen_past_its_leases_begins_none_of_the_jobs_that_wait(
    shop: Shop, tmp_path: Path, kind: str
) -> None:
    """They were taken in advance, and its heartbeat has not had the time to learn of the loss."""
    frozen = tmp_path / "frozen"
    with shop.place.open() as onefold:
        jobs = [NewJob(kind, backoff=AT_ONCE) for _ in range(MANY)]
        ids = [answer.id for answer in onefold.enqueue_many(jobs)]
    worker = shop.start(Death("began", frozen=frozen), concurrency=1, prefetch=MANY, chores=False)
    until(frozen.exists, "for the worker to stand still")
    assert {(job.state, job.fence) for job in audit.jobs(shop.place)} == {(1, 1)}

    shop.drain()
    worker.signal(signal.SIGCONT)
    worker.stop()

    audit.check(shop.place, shop.ledger, ids)
    assert [line.fence for line in shop.ledger.lines("ping") if line.fence == 1] == [1]


def _begin(shop: Shop, hold: Death, **options: Any) -> tuple[list[str], Worker]:
    """A worker whose handlers have all begun, and wait at the gate."""
    with shop.place.open() as onefold:
        ids = enqueue(onefold, COUNT)
    worker = shop.start(hold, concurrency=COUNT, prefetch=0, **options)
    until(lambda: shop.ledger.count("waiting") == COUNT, "for all handlers to begin")
    return ids, worker


def _finished_by(shop: Shop) -> Counter[str]:
    return Counter(worker for (worker,) in shop.place.rows("select worker from {job}"))
