"""Runs handlers: coroutines as tasks, plain functions in threads or in child processes.

A delivery that has ended goes into `Executor.ended`, with its outcome. The producer reads it there.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from contextlib import suppress
from contextvars import ContextVar, copy_context
from datetime import datetime, timedelta
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from onefold.effects.run import Run
from onefold.errors import InvalidInput, UsageError
from onefold.hooks import NO_HOOKS
from onefold.model.delivery import Delivery
from onefold.model.event import JobStarted, Redelivered
from onefold.model.outcome import Outcome
from onefold.worker import delivery_outcome
from onefold.worker.delivery_outcome import DeliveryOutcome, Parked
from onefold.worker.job_log import job_fields, job_log
from onefold.worker.threads import Threads

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from onefold.app.context import Context
    from onefold.hooks import Hooks
    from onefold.jobs.job_function import Isolation
    from onefold.model.job import Job, JobRow
    from onefold.model.outcome import ErrorRules
    from onefold.worker.processes import Processes
    from onefold.worker.settings import WorkerSettings

T = TypeVar("T")
Cause: TypeAlias = Literal["timeout", "lost", "shutdown"]
"""Why the worker stops a handler."""

# Unlike `time.monotonic`, this clock counts while the machine is suspended. Leases end meanwhile.
# macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC counts. Windows has neither and needs neither.
lease_time: Callable[[], float] = (
    partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    if hasattr(time, "clock_gettime")
    else time.monotonic
)
"""The time by which this process judges its leases, in seconds."""

running: ContextVar[JobRow | None] = ContextVar("onefold_running", default=None)
"""The job whose handler runs here, for logs. Never reset: each handler has its own context."""


class Handler(Protocol):
    """Runs jobs, as a declared job does."""

    function: Callable[..., Any]
    is_async: bool
    isolation: Isolation
    """Where a plain function runs."""
    timeout: timedelta | None
    """The timeout, unless the job has its own."""
    on_dead: Callable[[Job], Any] | None
    """Called with a job that was buried."""
    stores_result: bool
    """Whether the return value is stored, unless the job has its own option."""
    wants_run: bool
    """Whether the function has a parameter for the `Run`."""
    rules: ErrorRules

    def bind(self, job: JobRow, run: Run | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call."""
        ...


class Handlers(Protocol):
    """Handlers by kind, as the registry of declared jobs."""

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """All kinds, as the worker reports them. None: it pushes jobs of any kind to endpoints."""
        ...

    def get(self, kind: str) -> Handler | None:
        """The handler of a kind, if there is one."""
        ...


class HeldDelivery:
    """A delivery that is leased to this worker: waiting, running, or not yet reported."""

    __slots__ = (
        "_job", "cause", "completed", "delivery", "duration", "entered", "handler", "is_over",
        "leased_until", "outcome", "row", "run", "started", "stop", "timeout", "timer",
    )  # fmt: skip

    def __init__(self, row: JobRow, handler: Handler, leased_until: float = math.inf) -> None:
        """Waits for a free place."""
        self.row: JobRow = row
        self.handler: Handler = handler
        self.leased_until: float = leased_until
        """By `lease_time`; heartbeats extend it. Not later than the end in the database."""
        self.delivery: Delivery = Delivery(row.id, row.fence)
        self._job: Job | None = None
        self.timeout: timedelta | None = None
        """Set at the start."""
        self.timer: TimerHandle | None = None
        """Interrupts the handler after the timeout."""
        self.run: Run | None = None
        """The `Run` of the handler, if it has a parameter for it."""
        self.started: float | None = None
        """By the monotonic clock; None while it waits."""
        self.duration: float = 0.0
        """Seconds that the handler took."""
        self.entered: bool = False
        """True once the task of the handler has begun."""
        self.stop: Callable[[], object] | None = None
        """Interrupts the handler, if that is possible."""
        self.cause: Cause | None = None
        """Why the handler was interrupted."""
        self.outcome: DeliveryOutcome | None = None
        """What to report; None for nothing."""
        self.completed: bool = False
        """True if a transaction of the handler, in a child process, has completed the job."""
        self.is_over: bool = False
        """True once the outcome is decided, even if the handler still runs."""

    @property
    def job(self) -> Job:
        """The complete job, made when it is first needed: for a `Run`, hooks, and options."""
        if self._job is None:
            self._job = self.row.job()
        return self._job


class Executor:
    """Starts handlers and collects their outcomes. Used in one event loop."""

    def __init__(
        self,
        context: Context,
        settings: WorkerSettings,
        processes: Processes,
        wake: asyncio.Event,
    ) -> None:
        """Created in its event loop; `wake` is set when a delivery has ended."""
        self.ended: deque[HeldDelivery] = deque()
        """Deliveries whose outcome is decided, for the producer to take."""
        self.running: int = 0
        """Handlers whose outcome is not decided."""
        self._context = context
        self._hooks = context.hooks
        self._settings = settings
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        # Each handler gets a copy, so that a variable set by one is not visible to the next.
        self._handler_context = copy_context()
        self._threads = Threads("onefold-handler", settings.concurrency)
        self._processes = processes

    def start(self, held: HeldDelivery) -> None:
        """Start the handler. An error before the start is the outcome of this delivery."""
        job, handler = held.row, held.handler
        held.started = time.monotonic()
        self.running += 1
        if job_log.isEnabledFor(logging.DEBUG):
            job_log.debug(
                "Job %s (%s) has started attempt %d.", job.id, job.kind, job.attempt,
                extra=job_fields(job),
            )  # fmt: skip
        try:
            held.timeout = handler.timeout
            if job.options is not None and held.job.timeout is not None:
                held.timeout = held.job.timeout
            if handler.wants_run:
                held.run = self._run_of(held)
            args, kwargs = handler.bind(job, held.run)
            if self._hooks.listeners:
                self._tell_started(held.job)
            self._start(held, args, kwargs)
        except InvalidInput as error:
            self._end(held, delivery_outcome.on_bad_payload(error))
        except Exception as error:  # noqa: BLE001 - decoding a payload may run application code
            self._end(held, delivery_outcome.on_error(error))

    def _run_of(self, held: HeldDelivery) -> Run:
        timeout = held.timeout
        return Run(
            self._context,
            held.job,
            lease=self._settings.lease,
            worker=self._settings.name,
            deadline=None if timeout is None else datetime.now().astimezone() + timeout,
        )

    def _tell_started(self, job: Job) -> None:
        due = max(job.run_at, job.created_at)
        waited = timedelta(0) if job.taken_at is None else max(job.taken_at - due, timedelta(0))
        self._hooks.tell(JobStarted(job, self._settings.name, waited))
        if job.attempt > 1:
            self._hooks.tell(Redelivered(job))

    def _start(self, held: HeldDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if held.handler.is_async:
            work = self._acall(held, args, kwargs)
            task = self._loop.create_task(work, context=self._handler_context.copy())
            # Also a reference to the task: the event loop keeps only a weak one.
            held.stop = task.cancel
        elif held.handler.isolation == "process":
            if lease_time() < held.leased_until:
                self._start_process(held)
            else:
                self._end(held, delivery_outcome.HANDED_BACK)
            return  # its timeout starts when the child calls the handler
        else:
            self._start_thread(held, args, kwargs)
        if held.timeout is not None:
            self._start_timer(held)

    # --- tasks ----------------------------------------------------------------------------------

    async def _acall(
        self, held: HeldDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Run the handler and decide the outcome here: a callback of the task costs more."""
        held.entered = True
        if lease_time() >= held.leased_until:
            self._end(held, delivery_outcome.HANDED_BACK)
            return
        outcome: DeliveryOutcome | None
        running.set(held.row)
        try:
            try:
                around = self._hooks.running(held.job) if self._hooks.around else NO_HOOKS
                value = await ainvoke(held.handler, around, args, kwargs)
            except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - any error is the handler's
                outcome = _raised(held, error)
            else:
                outcome = _returned(held, value)
        except BaseException as error:
            # The outcome is not valid, or the process is to end.
            self._end(held, _interrupted(held, error))
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise  # to the loop
        else:
            self._end(held, outcome)

    # --- threads and processes ------------------------------------------------------------------

    def _start_thread(
        self, held: HeldDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        def work() -> None:
            outcome: DeliveryOutcome | None
            try:
                if lease_time() < held.leased_until:
                    outcome = call(held, self._hooks, args, kwargs)
                else:
                    outcome = delivery_outcome.HANDED_BACK
            except BaseException as error:  # noqa: BLE001 - it would be lost in this thread
                outcome = _interrupted(held, error)
            with suppress(RuntimeError):  # the loop is closed: the handler was abandoned before
                self._loop.call_soon_threadsafe(self._end, held, outcome)

        held.stop = self._threads.submit(work, self._handler_context.copy()).interrupt

    def _start_process(self, held: HeldDelivery) -> None:
        def ended(outcome: DeliveryOutcome, completed: bool) -> None:  # noqa: FBT001 - a callback
            held.completed = completed
            self._end(held, outcome)

        child = self._processes.submit(
            held, self._settings, partial(self._start_timer, held), ended
        )
        held.stop = lambda: self._processes.kill(child)

    # --- the end --------------------------------------------------------------------------------

    def _start_timer(self, held: HeldDelivery) -> None:
        if held.timeout is not None:
            seconds = held.timeout.total_seconds()
            held.timer = self._loop.call_later(seconds, self._time_out, held, held.timeout)

    def _time_out(self, held: HeldDelivery, timeout: timedelta) -> None:
        self.interrupt(held, "timeout", delivery_outcome.on_timeout(timeout))

    def interrupt(self, held: HeldDelivery, cause: Cause, outcome: DeliveryOutcome | None) -> None:
        """Stop a handler. A task decides its outcome when it ends; a thread is not waited for."""
        if held.cause is None:  # the first cause counts
            held.cause = cause
            if held.stop is not None:
                held.stop()
            if held.handler.is_async and held.stop is not None and not held.entered:
                # A task that is cancelled before its first step does not enter the coroutine.
                self._end(held, _interrupted(held, asyncio.CancelledError()))
        if not held.handler.is_async and not held.is_over:
            self._end(held, outcome)

    def _end(self, held: HeldDelivery, outcome: DeliveryOutcome | None) -> None:
        if held.is_over or held.started is None:
            return
        held.is_over = True
        held.outcome = outcome
        held.duration = time.monotonic() - held.started
        if held.timer is not None:
            held.timer.cancel()
        self.running -= 1
        self.ended.append(held)
        self._wake.set()

    def close(self) -> None:
        """Let idle threads end, and kill child processes. A handler that hangs stays behind."""
        self._threads.close()
        self._processes.close()


def call(
    held: HeldDelivery, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> DeliveryOutcome:
    """Call a plain function, in a thread or a child process. Interrupts pass through."""
    running.set(held.row)
    try:
        around = hooks.running(held.job) if hooks.around else NO_HOOKS
        value = invoke(held.handler, around, args, kwargs)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any error is the handler's
        return delivery_outcome.on_error(error)
    return delivery_outcome.on_value(held, value)


def invoke(
    handler: Handler, around: AbstractContextManager[Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    """Call a plain function inside of the hooks; raises its error, or the outcome that it means."""
    with around:
        try:
            return _checked(handler.function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - any error is the handler's
            apply_rules(handler.rules, error)
    return None


async def ainvoke(
    handler: Handler, around: AbstractContextManager[Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    """`invoke`, awaited."""
    with around:
        try:
            return _checked(await handler.function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - any error is the handler's
            apply_rules(handler.rules, error)
    return None


def _returned(held: HeldDelivery, value: Any) -> DeliveryOutcome | None:
    """The outcome of a coroutine that returned; None if the job waits for its ack."""
    if isinstance(value, Parked):
        return None
    return value if isinstance(value, DeliveryOutcome) else delivery_outcome.on_value(held, value)


def _raised(held: HeldDelivery, error: BaseException) -> DeliveryOutcome | None:
    """The outcome of a coroutine that raised an error, or was cancelled."""
    if isinstance(error, asyncio.CancelledError):
        return _interrupted(held, error)
    return delivery_outcome.on_error(error)


def _checked(value: T) -> T:
    """The return value of a handler; an outcome is raised."""
    if isinstance(value, Outcome):
        raise value
    if isinstance(value, CoroutineType):
        value.close()
        raise UsageError(
            "The handler returned a coroutine, which is not awaited: nothing was done. Declare the"
            " async function itself, or make its decorator async too."
        )
    return value


def apply_rules(rules: ErrorRules, error: Exception) -> None:
    """Return if an error counts as success; otherwise raise it, or the outcome that it means."""
    if not isinstance(error, Outcome):
        if rules.forgives(error):
            return
        if (outcome := rules.outcome_of(error)) is not None:
            raise outcome from error
    raise error


def _interrupted(held: HeldDelivery, error: BaseException) -> DeliveryOutcome | None:
    """The outcome of an interrupted handler, by the cause; without a cause it is an error."""
    match held.cause:
        case "shutdown":
            return delivery_outcome.HANDED_BACK
        case "timeout":
            return delivery_outcome.on_timeout(held.timeout or timedelta(0))
        case "lost":
            return None
        case None:
            return delivery_outcome.on_error(error)
