"""`deliver`: call a handler with a real `Run` on a real job, as often as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from onefold.app.onefold import Tenant
from onefold.effects.run import Run
from onefold.errors import InvalidInput
from onefold.jobs.job_function import DeclaredJob, JobCall
from onefold.model.job import Job
from onefold.model.json_text import to_json
from onefold.model.step import Step
from onefold.testing.jobs import blocking
from onefold.worker.executor import ainvoke, invoke

if TYPE_CHECKING:
    from collections.abc import Coroutine

Caller: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Calls a plain function, or awaits a coroutine function."""

LEASE: Final = timedelta(hours=1)
AT_ONCE: Final = timedelta(0)
WORKER: Final = "onefold.testing"
MOST: Final = 100


class DeliveryResults(msgspec.Struct, frozen=True):
    """What the deliveries of one job have returned and stored."""

    results: list[Any]
    """What the handler returned, in the order of the deliveries."""
    job: Job
    """The job as it is stored after the last delivery."""
    steps: list[Step]
    """The steps as they are stored."""


class DeliveredJob:
    """A job in a queue of its own, which no worker serves: taken, called and reported here.

    It has no unique key and no group, which other jobs may hold.
    """

    def __init__(
        self, job: DeclaredJob[..., Any], call: JobCall[..., Any], *, attempts: int
    ) -> None:
        self._job = job
        self.calls: Tenant = Tenant(job.context)
        self._queue = f"{WORKER}:{uuid4()}"
        options: Any = {name: value for name, value in call.options.items() if name != "unique"}
        options |= {"queue": self._queue, "unique_key": None, "group_key": None}
        new_job = JobCall(call.declaration, call.payload, options).new_job()
        most = max(new_job.max_attempts, attempts)
        self._new = replace(new_job, max_attempts=most, run_at=None, delay=None)
        self.id: str = ""

    def enqueue(self) -> None:
        """Store it."""
        (answer,) = self.calls.enqueue_many([self._new])
        self.id = answer.id

    def take(self) -> Run | None:
        """Lease it; None if it has ended, or is leased."""
        taken = self.calls.deliveries.take([self._queue], worker=WORKER, lease=LEASE)
        return Run(self._job.context, taken[0], lease=LEASE, worker=WORKER) if taken else None

    def call(self, run: Run, caller: Caller) -> Any:
        """Call the handler as a worker does; raises its error, or the outcome that it means."""
        job, hooks = self._job, self._job.context.hooks
        args, kwargs = job.bind(run.job, run if job.wants_run else None)

        def called() -> Any:
            return invoke(job, hooks.running(run.job), args, kwargs)

        async def acalled() -> Any:
            return await ainvoke(job, hooks.running(run.job), args, kwargs)

        return caller(acalled if job.is_async else called)

    def finish(self, run: Run, value: Any = None) -> None:
        """Complete it, unless the handler has done so."""
        if not run.completed:
            results = {run.id: to_json(value, "result")} if self._job.stores_result else None
            self.calls.deliveries.finish([run.job], results=results)

    def redeliver(self, run: Run) -> None:
        """The process of this delivery has vanished: the next one has a new fence."""
        if not run.completed:
            self.calls.deliveries.retry([run.job], after=AT_ONCE)

    def bury(self, run: Run, error: BaseException) -> None:
        """Let it end, unless the handler has completed it."""
        if not run.completed:
            self.calls.deliveries.bury([run.job], reason="the handler raised an error", error=error)


def deliver(
    job: DeclaredJob[..., Any], *args: Any, times: int = 2, attempt: int = 1, **kwargs: Any
) -> DeliveryResults:
    """Call the handler of a job with these arguments, as often as `times` says.

    The job is a real row, and each call has a `Run` with a new fence: as if the worker was killed
    after each call but the last one. Steps and keys survive between the calls. A handler that has
    completed its job by `run.transaction()` is not called again. What the handler raises is
    raised, also an outcome that it returns; the job is buried then. An error that `done_on` names
    is not raised. `attempt` is the number of the first attempt. The job has no unique key and no
    group, which other jobs may hold.
    """
    delivered = _delivered(job, args, kwargs, times=times, attempt=attempt)
    if job.is_async:
        return blocking(partial(_awaited, delivered, attempt, times))
    return _deliver(delivered, attempt, times, lambda function: function())


async def adeliver(
    job: DeclaredJob[..., Any], *args: Any, times: int = 2, attempt: int = 1, **kwargs: Any
) -> DeliveryResults:
    """`deliver`, awaited: async handlers run in this event loop."""
    return await _awaited(
        _delivered(job, args, kwargs, times=times, attempt=attempt), attempt, times
    )


def _delivered(
    job: DeclaredJob[..., Any], args: Any, kwargs: Any, *, times: int, attempt: int
) -> DeliveredJob:
    if not isinstance(cast("object", job), DeclaredJob):
        raise InvalidInput("job", f"must be a function with @onefold.job, got {job!r}")
    for name, value in (("times", times), ("attempt", attempt)):
        if type(value) is not int or not 1 <= value <= MOST:
            raise InvalidInput(name, f"must be a whole number from 1 to {MOST}, got {value!r}")
    return DeliveredJob(job, job.call(*args, **kwargs), attempts=attempt + times - 1)


async def _awaited(delivered: DeliveredJob, attempt: int, times: int) -> DeliveryResults:
    caller = in_loop(asyncio.get_running_loop())
    return await asyncio.to_thread(_deliver, delivered, attempt, times, caller)


def in_loop(loop: asyncio.AbstractEventLoop) -> Caller:
    """Awaits coroutine functions in an event loop, and calls plain functions here: not there."""

    def caller(function: Callable[[], Any]) -> Any:
        if not iscoroutinefunction(function):
            return function()
        work = cast("Coroutine[Any, Any, Any]", function())
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    return caller


def _deliver(delivered: DeliveredJob, attempt: int, times: int, caller: Caller) -> DeliveryResults:
    delivered.enqueue()
    results: list[Any] = []
    last = attempt + times - 1
    run: Run | None = None
    for number in range(1, last + 1):
        run = delivered.take()
        assert run is not None
        if number >= attempt:
            try:
                results.append(delivered.call(run, caller))
            except (Exception, SystemExit) as error:
                delivered.bury(run, error)
                raise
        if run.completed:
            break
        if number < last:
            delivered.redeliver(run)
        else:
            delivered.finish(run, results[-1])
    calls = delivered.calls
    assert run is not None
    job = calls.get(delivered.id) or run.job  # gone, if its retention is 0
    return DeliveryResults(results, job, calls.deliveries.steps(delivered.id))
