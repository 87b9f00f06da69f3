"""What can be delivered: declared jobs, calls of a function with a connection, requests."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from onefold.errors import Busy, LeaseLost
from onefold.model.lifecycle import Event
from onefold.model.outcome import Outcome
from onefold.model.timestamps import MICROSECOND
from onefold.testing.points import Crash, current
from onefold.testing.requests import respond
from onefold.worker.delivery_outcome import on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onefold.effects.run import Run
    from onefold.testing.deliver import DeliveredJob
    from onefold.testing.idempotency import IdempotencyCheck
    from onefold.testing.points import Trace
    from onefold.testing.requests import RouteRequest, RouteResponse

BUSY: Final = frozenset({409, 425, 429, 503})
"""Responses after which a client tries again later."""
SERVER_ERROR: Final = 500


class Subject:
    """Work that can be delivered: number 0, and what follows it."""

    def __init__(self, check: IdempotencyCheck) -> None:
        self._check = check
        self.own_jobs: set[str] = set()
        """The ids of the jobs that are the work itself."""

    def prepare(self) -> None:
        """Store what belongs to the starting state: a job has the same id in all scenarios."""

    def deliver(self, trace: Trace, number: int = 0) -> bool:
        """Deliver it once; True if it has ended, and will not be delivered again."""
        raise NotImplementedError

    def redeliver(self) -> None:
        """The process of the last delivery has vanished: make the work ready again.

        The sender of a request sends it again by itself.
        """


class JobSubject(Subject):
    """Declared jobs."""

    def __init__(self, check: IdempotencyCheck, jobs: Sequence[DeliveredJob]) -> None:
        super().__init__(check)
        self._jobs = jobs
        self._taken: Run | None = None

    def prepare(self) -> None:
        """Enqueue the jobs."""
        for job in self._jobs:
            job.enqueue()
            self.own_jobs.add(job.id)

    def redeliver(self) -> None:
        """End the lease of the last delivery."""
        if self._taken is not None:
            self._jobs[0].redeliver(self._taken)

    def deliver(self, trace: Trace, number: int = 0) -> bool:
        """Take the job, call its handler, and report the outcome."""
        job = self._jobs[number]
        run = job.take()
        if run is None:
            return True
        if not number:
            self._taken = run
        try:
            value = job.call(run, lambda function: self._check.call(function, trace))
        except LeaseLost:
            return False
        except Exception as error:  # noqa: BLE001 - as the worker does
            return self._failed(job, run, error)
        if trace.is_unreported:
            raise Crash
        job.finish(run, value)
        return True

    def _failed(self, job: DeliveredJob, run: Run, error: Exception) -> bool:
        """Report what a handler has raised; an error of its own is raised again."""
        outcome = on_error(error)
        buried = outcome.event in {Event.BURY, Event.CANCEL}
        if buried:
            job.bury(run, error)
        else:
            job.redeliver(run)
        self._check.advance((outcome.after or 0) * MICROSECOND)
        if not isinstance(error, Outcome | Busy):
            raise error
        return buried


class CallSubject(Subject):
    """Calls of a function that takes a connection."""

    def __init__(
        self,
        check: IdempotencyCheck,
        function: Callable[..., Any],
        calls: Sequence[Sequence[Any]],
        connect: Callable[[], Any] | None,
    ) -> None:
        """Without `connect`, the usual driver opens the connections."""
        super().__init__(check)
        self._connect = connect
        self._function = function
        self._calls = calls

    def deliver(self, trace: Trace, number: int = 0) -> bool:
        """Call the function with a new connection."""
        work = self._awaited if iscoroutinefunction(self._function) else self._called
        self._check.call(partial(work, *self._calls[number]), trace)
        return True

    def _called(self, *args: Any) -> None:
        connection = (self._connect or self._check.snapshots.connect)()
        try:
            self._function(connection, *args)
            current_trace = current.get()
            if current_trace is None or not current_trace.is_dead:
                connection.commit()
        finally:
            connection.close()

    async def _awaited(self, *args: Any) -> None:
        made = (self._connect or self._check.snapshots.aconnect)()
        connection = await made if isawaitable(made) else made
        try:
            await self._function(connection, *args)
            if hasattr(connection, "commit"):
                await connection.commit()
        finally:
            await connection.close()


class RouteSubject(Subject):
    """Requests to an ASGI or WSGI application."""

    def __init__(self, check: IdempotencyCheck, app: Any, requests: Sequence[RouteRequest]) -> None:
        super().__init__(check)
        self._app = app
        self._requests = requests

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
