"""What can be delivered: a declared job, a function with a connection, a request to a route."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from msgspec.structs import replace

from onefold.effects.run import Run
from onefold.errors import Busy, LeaseLost
from onefold.jobs.job_function import JobCall
from onefold.model.lifecycle import Event
from onefold.model.outcome import Outcome
from onefold.model.timestamps import MICROSECOND
from onefold.testing.points import Crash, current
from onefold.testing.requests import respond
from onefold.worker.delivery_outcome import on_error
from onefold.worker.executor import apply_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onefold.app.onefold import Tenant
    from onefold.jobs.job_function import DeclaredJob
    from onefold.model.job import Job
    from onefold.testing.points import Trace
    from onefold.testing.requests import RouteRequest, RouteResponse

LEASE: Final = timedelta(hours=1)
AT_ONCE: Final = timedelta(0)
WORKER: Final = "onefold.testing"
ATTEMPTS: Final = 100
"""More than a check needs: a job must not be buried for its simulated crashes."""
BUSY: Final = frozenset({409, 425, 429, 503})
"""Responses after which a client tries again later."""
SERVER_ERROR: Final = 500


class HandlerCaller(Protocol):
    """Calls handlers: the check that a subject belongs to."""

    response: RouteResponse | None

    def call(self, function: Callable[[], Any], trace: Trace) -> Any:
        """Call a handler, and report to `trace` what it does."""
        ...

    def advance(self, duration: timedelta) -> None:
        """Move the time, instead of waiting."""
        ...

    def connect(self) -> Any:
        """A connection for a function."""
        ...

    async def aconnect(self) -> Any:
        """`connect`, awaited."""
        ...


class Subject(Protocol):
    """Work that can be delivered."""

    def prepare(self) -> None:
        """Store what belongs to the starting state: a job has the same id in all scenarios."""
        ...

    def begin(self) -> None:
        """A new scenario begins."""
        ...

    def deliver(self, trace: Trace, number: int = 0) -> bool:
        """Deliver it once; True if it has ended, and will not be delivered again.

        `number` is 0 for the work itself, and more for the work that follows it.
        """
        ...

    def redeliver(self) -> None:
        """The process of the last delivery has vanished: make the work ready again."""
        ...

    @property
    def own_jobs(self) -> set[str]:
        """The ids of the jobs that are the work itself."""
        ...


class JobSubject:
    """A declared job."""

    def __init__(
        self, check: HandlerCaller, calls: Tenant, job: DeclaredJob[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._check = check
        self._calls = calls
        self._job = job
        given = len(args) == 1 and isinstance(args[0], JobCall)
        self._new = (args[0] if given else job.call(*args)).new_job()
        # A queue of its own, which no worker serves.
        self._queue = f"{WORKER}:{uuid4()}"
        self._taken: Job | None = None
        self.own_jobs: set[str] = set()

    def prepare(self) -> None:
        """Enqueue the job."""
        most = max(self._new.max_attempts, ATTEMPTS)
        new_job = replace(self._new, queue=self._queue, max_attempts=most, run_at=None, delay=None)
        (answer,) = self._calls.enqueue_many([new_job])
        self.own_jobs = {answer.id}

    def begin(self) -> None:
        """The job is queued again."""
        self._taken = None

    def redeliver(self) -> None:
        """End the lease of the last delivery."""
        if self._taken is not None:
            self._calls.deliveries.retry([self._taken], after=AT_ONCE)

    def deliver(self, trace: Trace, number: int = 0) -> bool:
        """Take the job, call its handler, and report the outcome."""
        del number  # a completed job is not delivered again
        deliveries = self._calls.deliveries
        taken = deliveries.take([self._queue], worker=WORKER, lease=LEASE)
        if not taken:
            return True
        self._taken = taken[0]
        run = Run(self._job.context, taken[0], lease=LEASE, worker=WORKER)
        try:
            self._call(run, trace)
        except LeaseLost:
            return False
        except Exception as error:  # noqa: BLE001 - as the worker does
            return self._failed(run, error)
        if trace.is_unreported:
            raise Crash
        if not run.completed:
            deliveries.finish(taken)
        return True

    def _failed(self, run: Run, error: Exception) -> bool:
        """Report what a handler has raised; an error of its own is raised again."""
        outcome, deliveries = on_error(error), self._calls.deliveries
        buried = outcome.event in {Event.BURY, Event.CANCEL}
        if buried:
            deliveries.bury([run.job], reason=str(error) or "buried")
        elif not run.completed:
            deliveries.retry([run.job], after=AT_ONCE)
        self._check.advance((outcome.after or 0) * MICROSECOND)
        if not isinstance(error, Outcome | Busy):
            raise error
        return buried

    def _call(self, run: Run, trace: Trace) -> None:
        """Call the handler, as the worker does: its outcomes and rules decide what is raised."""
        job = self._job
        args, kwargs = job.bind(run.job, run if job.wants_run else None)
        work = self._awaited if iscoroutinefunction(job.function) else self._called
        try:
            value = self._check.call(partial(work, run, args, kwargs), trace)
        except Exception as error:  # noqa: BLE001 - raised again, unless it counts as success
            apply_rules(job.rules, error)
        else:
            if isinstance(value, Outcome):
                raise value

    def _called(self, run: Run, args: Any, kwargs: Any) -> Any:
        with self._job.context.hooks.running(run.job):
            return self._job.function(*args, **kwargs)

    async def _awaited(self, run: Run, args: Any, kwargs: Any) -> Any:
        with self._job.context.hooks.running(run.job):
            return await self._job.function(*args, **kwargs)


class CallSubject:
    """A function that takes a connection."""

    def __init__(
        self, check: HandlerCaller, function: Callable[..., Any], calls: Sequence[Sequence[Any]]
    ) -> None:
        self._check = check
        self._function = function
        self._calls = calls
        self.own_jobs: set[str] = set()

    def prepare(self) -> None:
        """Nothing belongs to the starting state."""

    def begin(self) -> None:
        """Nothing is left of the last scenario."""

    def redeliver(self) -> None:
        """The sender sends it again by itself."""

    def deliver(self, trace: Trace, number: int = 0) -> bool:
        """Call the function with a new connection."""
        work = self._awaited if iscoroutinefunction(self._function) else self._called
        self._check.call(partial(work, *self._calls[number]), trace)
        return True

    def _called(self, *args: Any) -> None:
        connection = self._check.connect()
        try:
            self._function(connection, *args)
            current_trace = current.get()
            if current_trace is None or not current_trace.is_dead:
                connection.commit()
        finally:
            connection.close()

    async def _awaited(self, *args: Any) -> None:
        connection = await self._check.aconnect()
        try:
            await self._function(connection, *args)
            if hasattr(connection, "commit"):
                await connection.commit()
        finally:
            await connection.close()


class RouteSubject:
    """A request to an ASGI or WSGI application."""

    def __init__(self, check: HandlerCaller, app: Any, requests: Sequence[RouteRequest]) -> None:
        self._check = check
        self._app = app
        self._requests = requests
        self.own_jobs: set[str] = set()

    def prepare(self) -> None:
        """Nothing belongs to the starting state."""

    def begin(self) -> None:
        """Nothing is left of the last scenario."""

    def redeliver(self) -> None:
        """The sender sends it again by itself."""

    def deliver(self, trace: Trace, number: int = 0) -> bool:
        """Send the request."""
        sending = respond(self._app, self._requests[number])
        response: RouteResponse = self._check.call(sending, trace)
        if response.status in BUSY:
            self._check.advance(timedelta(seconds=response.retry_after or 1))
            return False
        if response.status >= SERVER_ERROR:
            raise ServerFailed(f"status {response.status}: {response.body[:200]!r}")
        if not number:
            self._check.response = response
        return True


class ServerFailed(Exception):
    """A route has responded with a server error."""
