"""Every handler of the examples, delivered twice: after each other, and late."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from onefold import Cancel, Job, LeaseLost, Run
from tests.examples.stories import Story, World, ready

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
