"""`deliver`: call a handler with a real `Run` on a real job, as often as a test wants."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from onefold.app.deliveries import Deliveries
from onefold.app.jobs import enqueue_new
from onefold.effects.run import Run
from onefold.errors import InvalidInput
from onefold.jobs.job_function import DeclaredJob
from onefold.model.failure import described
from onefold.model.job import Job
from onefold.model.json_text import to_json
from onefold.model.outcome import Outcome
from onefold.model.step import Step
from onefold.operations import jobs
from onefold.runtime import Call, Procedure, Transact
from onefold.testing.jobs import blocking

LEASE: Final = timedelta(hours=1)
AT_ONCE: Final = timedelta(0)
WORKER: Final = "onefold.testing"
RAISED: Final = "the handler raised an error"


class DeliveryResults(msgspec.Struct, frozen=True):
    """What the deliveries of one job have returned and stored."""

    results: list[Any]
    """What the handler returned, in the order of the deliveries."""
    job: Job
    """The job as it is stored after the last delivery."""
    steps: list[Step]
    """The steps as they are stored."""


def deliver(
    job: DeclaredJob[..., Any], *args: Any, times: int = 2, attempt: int = 1, **kwargs: Any
) -> DeliveryResults:
    """Call the handler of a job with these arguments, as often as `times` says.

    The job is a real row, and each call has a `Run` with a new fence: as if the worker was killed
    after each call but the last one. Steps and keys survive between the calls. A handler that has
    completed its job by `run.transaction()` is not called again. What the handler raises is
    raised, also an outcome that it returns; the job is buried then. `attempt` is the number of the
    first attempt. The job has no unique key and no group, which other jobs may hold.
    """
    _check(job)
    if job.is_async:
        return blocking(lambda: adeliver(job, *args, times=times, attempt=attempt, **kwargs))
    return job.context.runtime.run(_deliver(job, args, kwargs, times=times, attempt=attempt))


async def adeliver(
    job: DeclaredJob[..., Any], *args: Any, times: int = 2, attempt: int = 1, **kwargs: Any
) -> DeliveryResults:
    """`deliver`, awaited."""
    _check(job)
    delivering = _deliver(job, args, kwargs, times=times, attempt=attempt)
    return await job.context.runtime.arun(delivering)


def _check(job: object) -> None:
    if not isinstance(job, DeclaredJob):
        raise InvalidInput("job", f"must be a function with @onefold.job, got {job!r}")


def _deliver(
    job: DeclaredJob[..., Any], args: Any, kwargs: Any, *, times: int, attempt: int
) -> Procedure[DeliveryResults]:
    for name, value in (("times", times), ("attempt", attempt)):
        if type(value) is not int or not 1 <= value <= 100:  # noqa: PLR2004 - enough for a test
            raise InvalidInput(name, f"must be a whole number from 1 to 100, got {value!r}")
    context, deliveries = job.context, Deliveries(job.context)
    # A queue of its own, which no worker serves.
    queue, last = f"{WORKER}:{uuid4()}", attempt + times - 1
    alone = job.using(queue=queue, unique_key=None, group_key=None)
    new_job = alone.call(*args, **kwargs).new_job()
    most = max(new_job.max_attempts, last)
    enqueued = yield from enqueue_new(context, replace(new_job, max_attempts=most))
    results: list[Any] = []
    for number in range(1, last + 1):
        (taken,) = yield Call(partial(deliveries.take, [queue], worker=WORKER, lease=LEASE))
        if number >= attempt:
            run = Run(context, taken, lease=LEASE, worker=WORKER)
            results.append((yield from _called(job, taken, run, deliveries)))
            if run.completed:
                break
        if number < last:
            # As after a crash: the next delivery has the next attempt and a new fence.
            yield Call(partial(deliveries.retry, [taken], after=AT_ONCE))
        else:
            stored = {taken.id: to_json(results[-1], "result")} if job.stores_result else None
            yield Call(partial(deliveries.finish, [taken], results=stored))
    wanted = enqueued.id
    found = yield Transact(lambda sql: jobs.get(sql, context.tenant, [wanted]), write=False)
    steps = yield Call(deliveries.steps, (wanted,))
    return DeliveryResults(results, found[wanted], steps)


def _called(
    job: DeclaredJob[..., Any], taken: Job, run: Run, deliveries: Deliveries
) -> Procedure[Any]:
    given, named = job.bind(taken, run if job.wants_run else None)
    try:
        return _checked((yield Call(partial(job.function, *given, **named))))
    except (Exception, SystemExit) as error:
        if not run.completed:
            details = described(error)
            yield Call(partial(deliveries.bury, [taken], reason=RAISED, error=details))
        raise


def _checked(value: Any) -> Any:
    if isinstance(value, Outcome):
        raise value
    return value
