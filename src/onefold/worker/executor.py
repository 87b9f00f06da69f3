"""Runs handlers: coroutines as tasks, functions in threads, and in processes where they say so."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from onefold.effects.run import Run
from onefold.errors import InvalidInput
from onefold.model.event import JobStarted, Redelivered
from onefold.model.timestamps import MICROSECOND
from onefold.worker import delivery_outcome
from onefold.worker.delivery_outcome import DeliveryOutcome, Parked
from onefold.worker.handlers import call, meaning, running, said
from onefold.worker.job_log import job_fields, job_log
from onefold.worker.processes import ChildTask, Processes
from onefold.worker.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.app.context import Context
    from onefold.worker.producer import HeldDelivery
    from onefold.worker.settings import WorkerSettings


class Executor:
    """Starts what it is given and tells `ended` when it is over: always in the event loop."""

    def __init__(
        self, context: Context, settings: WorkerSettings, ended: Callable[[HeldDelivery], None]
    ) -> None:
        """Made in the event loop that it will run in."""
        self._context = context
        self._hooks = context.hooks
        self._settings = settings
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        # Every handler begins in a copy of this: what one sets, the next must not see.
        self._handler_context = copy_context()
        self._threads = Threads("onefold-handler", settings.concurrency)
        self._processes = Processes(self._loop, context.hooks)
        self._done: deque[tuple[HeldDelivery, DeliveryOutcome | None]] = deque()

    def start(self, held: HeldDelivery) -> None:
        """Begin; what keeps it from beginning is the end of this delivery, and of no other."""
        held.started = time.monotonic()
        if job_log.isEnabledFor(logging.DEBUG):
            job = held.job
            job_log.debug(
                "Job %s (%s) has started attempt %d.", job.id, job.kind, job.attempt,
                extra=job_fields(job),
            )  # fmt: skip
        try:
            self._begin(held)
        except Exception as error:  # noqa: BLE001 - a payload may run code of its types
            self._over(held, delivery_outcome.on_error(error))

    def _begin(self, held: HeldDelivery) -> None:
        timeout = _timeout(held)
        if held.declared.wants_run:
            held.run = self._run(held, timeout)
        try:
            args, kwargs = held.declared.bind(held.job, held.run)
        except InvalidInput as error:
            self._over(held, delivery_outcome.on_bad_payload(error))
            return
        if self._hooks.wanted:
            self._tell_started(held)
        if held.declared.is_async:
            self._start_task(held, args, kwargs)
        elif held.declared.isolation == "process":
            self._start_process(held)
            return  # its time begins when its process has
        else:
            self._start_thread(held, args, kwargs)
        self._set_alarm(held)

    def _set_alarm(self, held: HeldDelivery) -> None:
        if (timeout := _timeout(held)) is not None:
            alarm = self._loop.call_later(timeout.total_seconds(), self._time_out, held, timeout)
            held.alarm = alarm

    def _run(self, held: HeldDelivery, timeout: timedelta | None) -> Run:
        return Run(
            self._context,
            held.job,
            lease=self._settings.lease,
            worker=self._settings.name,
            deadline=None if timeout is None else _from_now(timeout),
        )

    def _tell_started(self, held: HeldDelivery) -> None:
        job = held.job
        due = max(job.run_at_micros, job.created_at_micros)
        waited = max(0, job.read_at_micros - due) * MICROSECOND
        self._hooks.tell(JobStarted(job, self._settings.name, waited))
        if job.attempt > 1:
            self._hooks.tell(Redelivered(job))

    def _start_task(
        self, held: HeldDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        work = self._attend(held, args, kwargs)
        task = self._loop.create_task(work, context=self._handler_context.copy())
        # Whoever holds the delivery holds the task, too: the loop alone would forget it.
        held.stop = task.cancel
        task.add_done_callback(partial(self._attended, held))

    def _attended(self, held: HeldDelivery, task: asyncio.Task[None]) -> None:
        """However its task has ended: a lease would be kept for ever, and a place."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if not held.is_over and error is not None:
            self._over(held, self._stopped(held, error))

    async def _attend(
        self, held: HeldDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        declared = held.declared
        value: Any = None
        running.set(held.job)
        try:
            # What leaves the handler passes through the hooks, outcomes that it returns included.
            with self._hooks.running(held.job), meaning(declared):
                value = said(await declared.function(*args, **kwargs))
        except asyncio.CancelledError as error:
            self._over(held, self._stopped(held, error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the handler's
            self._over(held, delivery_outcome.on_error(error))
        else:
            if isinstance(value, DeliveryOutcome | Parked):
                self._over(held, value if isinstance(value, DeliveryOutcome) else None)
            else:
                self._over(held, delivery_outcome.on_value(declared, held.job, value))

    def _start_thread(
        self, held: HeldDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        def work() -> None:
            # Not written down here: the loop may have given this thread up, and said so.
            self._done.append((held, self._call(held, args, kwargs)))
            # Not in the context of this job: what others have ended is collected with it.
            self._loop.call_soon_threadsafe(self._collect, context=self._handler_context.copy())

        task = self._threads.submit(work, self._handler_context.copy())
        held.stop = task.interrupt

    def _call(
        self, held: HeldDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> DeliveryOutcome | None:
        """The handler, in a thread."""
        try:
            return call(held.declared, held.job, self._hooks, args, kwargs)
        except BaseException as error:  # noqa: BLE001 - in a thread, there is nobody else to catch it
            return self._stopped(held, error)

    def _start_process(self, held: HeldDelivery) -> None:
        function = held.declared.function
        order = ChildTask(
            function.__module__,
            function.__qualname__,
            msgspec.structs.astuple(held.job),
            self._settings.lease,
            self._settings.name,
            _timeout(held),
        )

        def answered(word: DeliveryOutcome, completed: bool) -> None:  # noqa: FBT001 - a callback
            held.completed = completed
            self._over(held, word)

        child = self._processes.submit(order, partial(self._set_alarm, held), answered)
        held.stop = lambda: self._processes.kill(child)

    def _collect(self) -> None:
        while self._done:
            self._over(*self._done.popleft())

    def _stopped(self, held: HeldDelivery, error: BaseException) -> DeliveryOutcome | None:
        """What an interrupted handler means: its own doing, or ours."""
        match held.cause:
            case "shutdown":
                return delivery_outcome.HANDED_BACK
            case "timeout":
                return delivery_outcome.on_timeout(_timeout(held) or timedelta(0))
            case "lost":
                return None
            case None:
                return delivery_outcome.on_error(error)

    def _time_out(self, held: HeldDelivery, timeout: timedelta) -> None:
        """A task is told to stop, and ends when it has; a thread is not waited for."""
        held.interrupt("timeout")
        if not held.declared.is_async:
            self.give_up(held, delivery_outcome.on_timeout(timeout))

    def give_up(self, held: HeldDelivery, word: DeliveryOutcome | None) -> None:
        """Do not wait for a thread any longer."""
        if not held.is_over:
            if held.declared.isolation != "process":
                self._threads.abandon()
            self._over(held, word)

    def _over(self, held: HeldDelivery, word: DeliveryOutcome | None) -> None:
        if held.is_over:
            return
        held.is_over = True
        held.ended = time.monotonic()
        held.verdict = word
        if held.alarm is not None:
            held.alarm.cancel()
        self._ended(held)

    def close(self) -> None:
        """Let idle threads end; a handler that hangs is left behind."""
        self._threads.close()
        self._processes.close()


def _timeout(held: HeldDelivery) -> timedelta | None:
    own = held.job.timeout if held.job.options_text is not None else None
    return held.declared.timeout if own is None else own


def _from_now(timeout: timedelta) -> datetime:
    return datetime.now().astimezone() + timeout
