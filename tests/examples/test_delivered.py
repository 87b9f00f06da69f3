"""Every handler of the examples, delivered twice, late, or with an answer that is lost."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from onefold import Busy, Cancel, Job, LeaseLost, Run
from tests.examples.deaths import work
from tests.examples.stories import STORIES, Story, World, ready

LEASE = timedelta(seconds=60)


class Deliveries:
    """Takes jobs, and runs them, as a worker does; but when it is told to."""

    def __init__(self, handlers: ModuleType) -> None:
        self.onefold = handlers.onefold

    def take(self) -> Job:
        job: Job
        (job,) = self.onefold.deliveries.take(worker="test", lease=LEASE)
        return job

    def take_again(self, job: Job) -> Job:
        self.onefold.deliveries.retry([job], after=timedelta(0))
        return self.take()

    def run(self, job: Job) -> Any:
        """What the handler returned; an outcome or an error that it may end by is no error."""
        declared = self.onefold.jobs.get(job.kind)
        run = Run(self.onefold.context, job, lease=LEASE, worker="test")
        args, kwargs = declared.bind(job, run)
        try:
            value = declared.function(*args, **kwargs)
            return asyncio.run(value) if declared.is_async else value
        except Cancel:
            return None
        except Exception as error:
            if not declared.rules.forgives(error):
                raise
            return None

    def finish(self, job: Job, value: Any) -> None:
        self.onefold.deliveries.finish([job], results={job.id: value})

    def is_done(self, job: Job) -> bool:
        return bool(self.onefold.get(job.id).state == "completed")


@pytest.mark.parametrize("is_late", [False, True])
def test_a_job_that_is_delivered_twice_has_its_effect_once(
    story: Story, world: World, handlers: ModuleType, *, is_late: bool
) -> None:
    """The first worker works before the second one, or wakes up after it."""
    job_id = ready(story, world, handlers, 1)
    deliveries = Deliveries(handlers)

    first = deliveries.take()
    if not is_late:
        deliveries.run(first)
    if not deliveries.is_done(first):
        job = deliveries.take_again(first)
        value = deliveries.run(job)
        if not deliveries.is_done(job):
            deliveries.finish(job, value)
    if is_late:
        with suppress(LeaseLost):
            deliveries.run(first)

    assert story.effects(world, 1, job_id) == story.once


# --- an answer is lost ----------------------------------------------------------------------------

CALLING = [story for story in STORIES if story.kind in {"charge", "refund", "buy_label"}]
ATTEMPTS = {"charge": 3, "refund": 1, "buy_label": 1}
"""The bank that remembers keys is asked again; the others are asked what has become of it."""


@pytest.mark.parametrize("story", CALLING, ids=str)
def test_a_call_whose_answer_is_lost_has_its_effect_once(
    story: Story, world: World, handlers: ModuleType
) -> None:
    world.partner.loses = 2
    job_id = ready(story, world, handlers, 1)

    work(world, [job_id])

    job = handlers.onefold.get(job_id)
    assert (job.state, job.attempt) == ("completed", ATTEMPTS[story.kind])
    assert story.effects(world, 1, job_id) == story.once


def test_a_bank_that_refuses_the_connection_has_done_nothing(
    world: World, handlers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked: the step is given back, and the next attempt makes the call."""
    enqueued = handlers.third_party_key.refund.enqueue(order_id=1, cents=1990)
    (job,) = handlers.onefold.deliveries.take(worker="test", lease=LEASE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("PARTNER_URL", f"http://127.0.0.1:{port}")
    run = Run(handlers.onefold.context, job, lease=LEASE, worker="test")

    with pytest.raises(ConnectionRefusedError):
        handlers.third_party_key.refund.function(run, order_id=1, cents=1990)

    (step,) = handlers.onefold.deliveries.steps(enqueued.id)
    assert step.state == "retrying"


# --- what single examples say besides -------------------------------------------------------------


def test_a_product_is_found_by_the_name_that_it_has_when_the_job_runs(
    world: World, handlers: ModuleType
) -> None:
    with world.place.transaction() as connection:
        connection.execute("insert into product (id, name) values (7, 'Tea')")
    handlers.upsert.index_product(7)
    enqueued = handlers.upsert.index_product.enqueue(7)
    with world.place.transaction() as connection:
        connection.execute("update product set name = 'Coffee' where id = 7")

    work(world, [enqueued.id])

    assert world.rows("select words from search_entry") == [("coffee",)]


def test_a_run_that_finds_the_job_locked_comes_back_later(
    world: World, handlers: ModuleType
) -> None:
    enqueued = handlers.lock.build_report.enqueue("today")
    deliveries = Deliveries(handlers)
    job = deliveries.take()

    with handlers.onefold.lock(f"build_report:{enqueued.id}"), ThreadPoolExecutor(1) as another:
        run = another.submit(deliveries.run, job)
        assert isinstance(run.exception(), Busy)

    deliveries.run(job)
    assert world.rows("select count(*) from report_line") == [(3,)]


def test_an_event_that_comes_as_two_jobs_is_credited_once(
    world: World, handlers: ModuleType
) -> None:
    with world.place.transaction() as connection:
        connection.execute("insert into account (id, cents) values (1, 0)")
    jobs = [handlers.ledger.credit_event.enqueue("evt_9", 1, 700).id for _ in range(2)]

    work(world, jobs)

    assert world.rows("select cents from account") == [(700,)]


def test_a_label_is_given_to_everybody_who_asked_for_it(world: World, handlers: ModuleType) -> None:
    first, second = (handlers.cached_result.buy_label.enqueue(1) for _ in range(2))

    work(world, [first.id])

    assert first.result() == second.result() == "labels-1"
