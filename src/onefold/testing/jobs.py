"""Run jobs in tests: drain, run one, wait, empty the tables, and look at what was enqueued.

A real worker runs the jobs. Nothing of Onefold is replaced.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import UNSET, UnsetType

from onefold.app.jobs import finding, wait_for_end
from onefold.errors import Busy, JobFailed, UsageError
from onefold.model.delivery import TakeOrder
from onefold.model.event import Event, JobEnded, JobStarted
from onefold.model.job import DEFAULT_QUEUE
from onefold.model.json_text import decode_payload, encode_payload
from onefold.model.outcome import Bury, Cancel, Defer, Outcome, Retry
from onefold.model.timestamps import from_micros, to_micros
from onefold.operations.limited_take import take_controlled
from onefold.operations.maintenance import empty_tables
from onefold.operations.queues import TakenUnderControl
from onefold.runtime import Call, Procedure, awaited, call, transact
from onefold.worker.settings import worker_settings
from onefold.worker.threads import Interrupted
from onefold.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence

    from onefold.app.context import Context
    from onefold.app.onefold import Onefold, Tenant
    from onefold.model.job import Job, Json
    from onefold.model.queue import Outlook
    from onefold.operations.statement import Operation, Sql
    from onefold.testing.clock import Clock
    from onefold.worker.executor import Handler, Handlers

T = TypeVar("T")

log: logging.Logger = logging.getLogger("onefold.worker")

TICK: Final = 0.05
"""Seconds without a start or an end after which the runner looks whether any job can start."""
MOST: Final = 10_000
"""Jobs of one call. More are taken for a job that enqueues itself without end."""
OUTCOMES: Final = frozenset(
    f"{kind.__module__}.{kind.__qualname__}" for kind in (Retry, Defer, Bury, Cancel)
)
"""What a child process has raised."""
PAGE: Final = 500
"""Jobs that are read at once."""
SHOWN: Final = 10
"""Jobs that a message lists."""
TEN_SECONDS: Final = timedelta(seconds=10)


class JobRunner:
    """Runs the jobs of an Onefold with a real worker.

        runner = JobRunner(onefold)
        send_welcome.enqueue(42)
        runner.drain()

    What a handler raises is raised by these calls at their end, unless `raises` is False. `Retry`,
    `Defer`, `Bury` and `Cancel` are no errors, nor are errors that `retry_on`, `bury_on` or
    `done_on` of the job name.
    """

    def __init__(self, onefold: Onefold, clock: Clock | None = None) -> None:
        """`clock` is the clock of `onefold`; only `run_until_idle` needs it."""
        self._onefold = onefold
        self._clock = clock

    def drain(self, *, raises: bool = True, concurrency: int = 1) -> list[Job]:
        """Run the jobs that are due, and those that they enqueue; returns them as they ended.

        All queues are served. First it stores the declared schedules, enqueues the jobs of due
        ticks, and rescues jobs whose leases have ended. Jobs of paused queues, over a limit, and of
        kinds that are not declared, are left. A job that waits for another one needs a higher
        `concurrency`.
        """
        return blocking(lambda: self.adrain(raises=raises, concurrency=concurrency))

    async def adrain(self, *, raises: bool = True, concurrency: int = 1) -> list[Job]:
        """`drain`, awaited: async handlers run in this event loop."""
        ran = _Ran(self._onefold)
        await self._drain(ran, concurrency)
        return await ran.jobs(raises=raises)

    def run_one(self, *, raises: bool = True) -> Job | None:
        """Run one job that is due; returns it as it ended, or None if no job is due."""
        return blocking(lambda: self.arun_one(raises=raises))

    async def arun_one(self, *, raises: bool = True) -> Job | None:
        """`run_one`, awaited."""
        ran = _Ran(self._onefold, only_one=True)
        await self._drain(ran, 1)
        jobs = await ran.jobs(raises=raises)
        return jobs[0] if jobs else None

    def run_until_idle(self, *, raises: bool = True) -> list[Job]:
        """Run all jobs, also delayed and retried ones: moves the clock to when each may start."""
        return blocking(lambda: self.arun_until_idle(raises=raises))

    async def arun_until_idle(self, *, raises: bool = True) -> list[Job]:
        """`run_until_idle`, awaited."""
        now = self._onefold.context.now()
        if self._clock is None or to_micros(self._clock.now, "clock") != now:
            raise UsageError(
                "run_until_idle moves the time, so it needs the clock of onefold: use the fixture"
                " onefold_clock, with override(onefold_url, clock=onefold_clock) if the application"
                " makes its own object, or JobRunner(onefold, clock)."
            )
        ran = _Ran(self._onefold)
        while True:
            await self._drain(ran, 1)
            if ran.is_full or (raises and ran.has_failed):
                break
            outlooks = await self._look(await self._queues())
            ahead = [each.next_at for each in outlooks if each.next_at]
            for each in outlooks:
                wait = (await self._first(ran, each)).wait
                ahead += [] if wait is None else [each.now + wait]
            if not ahead:
                break
            self._clock.set(max(self._clock.now, from_micros(min(ahead))))
        return await ran.jobs(raises=raises)

    async def _queues(self) -> list[str]:
        """The queues of a worker, and all others that have jobs."""
        onefold = self._onefold
        scheduled = (one.queue for one in onefold.schedules.declared.schedules)
        stored = (queue.full_name for queue in (await onefold.queues.afind()).queues)
        return list(dict.fromkeys((*onefold.jobs.queues, *scheduled, DEFAULT_QUEUE, *stored)))

    async def _look(self, queues: Sequence[str]) -> list[Outlook]:
        outlooks = await self._onefold.deliveries.alook(queues)
        return [each for each in outlooks if not each.paused]

    async def _is_due(self, queues: Sequence[str]) -> bool:
        return any(each.due or each.due_grouped for each in await self._look(queues))

    async def _can_start(self, ran: _Ran, queues: Sequence[str]) -> bool:
        """Whether a worker would start a job now: one that is due may have to wait for a limit."""
        for each in await self._look(queues):
            if (await self._first(ran, each)).rows:
                return True
        return False

    async def _first(self, ran: _Ran, outlook: Outlook) -> TakenUnderControl:
        """What a worker would take from a queue now. It is taken, and rolled back."""
        store, queue = self._onefold.context.store, outlook.queue
        found = TakenUnderControl([])
        while outlook.due or outlook.due_grouped:
            order = TakeOrder({queue: 1}, 1, "-", 1, tuple(ran.unknown))
            try:
                await store.atransact(partial(_take_and_undo, order=order, queue=queue))
            except _Undone as undone:
                found = undone.taken
            if not found.rows or self._onefold.jobs.get(kind := found.rows[0].kind):
                break
            ran.leave(kind, queue)
        return found

    async def _drain(self, ran: _Ran, concurrency: int) -> None:
        onefold = self._onefold
        await onefold.queues.astore_declared()
        await onefold.schedules.astore_declared()
        await onefold.deliveries.atick()
        await onefold.deliveries.arescue()
        # A worker hands back what it has taken and not begun, and a job may enqueue others into a
        # queue that was empty: then another worker is needed.
        while not ran.is_full and await self._can_start(ran, queues := await self._queues()):
            await self._work(ran, queues, concurrency)

    async def _work(self, ran: _Ran, queues: Sequence[str], concurrency: int) -> None:
        onefold = self._onefold
        settings = worker_settings(
            {"queues": queues, "chores": False, "prefetch": 0, "concurrency": concurrency}
        )
        handlers: Handlers = _First(onefold.jobs) if ran.only_one else onefold.jobs
        with ran.recording():
            async with Worker(onefold.context, handlers, settings) as worker:
                ran.stop = worker.stop
                while not ran.is_full:
                    # A take that is undone is in the way of the worker's: not while it goes on.
                    goes_on = (
                        self._is_due if await ran.progress() else partial(self._can_start, ran)
                    )
                    if not ran.running and not await goes_on(queues):
                        break
                    worker.look()


class _Undone(Exception):
    """Rolls a take back."""

    def __init__(self, taken: TakenUnderControl) -> None:
        self.taken = taken


def _take_and_undo(sql: Sql, order: TakeOrder, queue: str) -> Operation[None]:
    raise _Undone((yield from take_controlled(sql, order, queue)))


class _First:
    """Handlers for one job. A worker that takes another one before it stops hands that one back."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._used = False

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """All kinds."""
        return self._handlers.kinds

    def get(self, kind: str) -> Handler | None:
        """The handler of the first job that has one."""
        found = None if self._used else self._handlers.get(kind)
        self._used = self._used or found is not None
        return found


class _Ran:
    """What a worker has run: the deliveries that have ended, and what their handlers raised."""

    def __init__(self, onefold: Onefold, *, only_one: bool = False) -> None:
        self._onefold = onefold
        self.only_one = only_one
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.stop: Callable[[], None] | None = None
        self.running: set[str] = set()
        self.ended: list[JobEnded] = []
        self.errors: list[tuple[Job, BaseException]] = []
        self._outcomes: set[tuple[str, int]] = set()
        """The deliveries whose handler has decided the outcome."""
        self.unknown: set[str] = set()
        """Kinds without a handler."""

    @property
    def has_failed(self) -> bool:
        """True if a handler has raised an error."""
        return bool(self.errors) or any(map(self._is_failure, self.ended))

    def _is_failure(self, event: JobEnded) -> bool:
        job = event.job
        decided = (job.id, job.fence) in self._outcomes or event.error_type in OUTCOMES
        return event.error_type is not None and not decided

    @property
    def is_full(self) -> bool:
        """True if no more jobs should run."""
        return len(self.ended) >= (1 if self.only_one else MOST)

    async def progress(self) -> bool:
        """Wait until a job starts or ends; False if none does for a while."""
        try:
            async with asyncio.timeout(TICK):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    @contextmanager
    def recording(self) -> Generator[None]:
        """Record what happens meanwhile."""
        hooks = self._onefold.context.hooks
        hooks.add(self._note)
        hooks.around.append(self._around)
        log.addFilter(_is_not_ours)
        try:
            yield
        finally:
            log.removeFilter(_is_not_ours)
            hooks.around.remove(self._around)
            hooks.remove(self._note)

    def leave(self, kind: str, queue: str) -> None:
        """Do not wait for jobs of a kind without a handler."""
        self.unknown.add(kind)
        log.warning(
            "Jobs of the kind %r are waiting in the queue %r. They are left: no declared job has"
            " this kind.", kind, queue,
        )  # fmt: skip

    def _note(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._count, event)

    def _count(self, event: Event) -> None:
        match event:
            case JobStarted(job):
                self.running.add(job.id)
                if self.only_one and self.stop is not None:
                    self.stop()
            case JobEnded(job, outcome):
                self.running.discard(job.id)
                if outcome != "handed back":
                    self.ended.append(event)
            case _:
                return
        self._changed.set()

    @contextmanager
    def _around(self, job: Job) -> Generator[None]:
        try:
            yield
        except (Outcome, Busy):
            self._outcomes.add((job.id, job.fence))
            raise
        except (asyncio.CancelledError, Interrupted):
            raise
        except BaseException as error:  # as pytest.fail does
            self.errors.append((job, error))
            raise

    async def jobs(self, *, raises: bool) -> list[Job]:
        """The jobs as they are stored now, each once; raises the first error of a handler."""
        ended = {event.job.id: event.job for event in self.ended}
        stored = {job.id: await self._stored(job) for job in ended.values()}
        if raises:
            self._raise(stored)
        if self.is_full and not self.only_one:
            raise UsageError(
                f"{MOST} jobs ran, and more may be due. If a job enqueues itself without end, run"
                " it with run_one."
            )
        return list(stored.values())

    async def _stored(self, job: Job) -> Job:
        calls: Tenant = self._onefold.tenant(job.tenant) if job.tenant else self._onefold
        return await calls.aget(job.id) or job  # gone, if its retention is 0

    def _raise(self, stored: dict[str, Job]) -> None:
        if self.errors:
            (job, error), *others = self.errors
            error.add_note(f"Raised by the job {job.kind} ({job.id}), attempt {job.attempt}.")
            for other, cause in others:
                error.add_note(f"The job {other.kind} ({other.id}) raised {cause!r}, too.")
            raise error
        for event in self.ended:
            if self._is_failure(event):
                # It was raised in a child process, the handler was stopped, or the payload is bad.
                job = stored[event.job.id]
                raise JobFailed(
                    job.id, kind=job.kind, state=job.state, reason=job.reason, error=job.error
                )


def _is_not_ours(record: logging.LogRecord) -> bool:
    """False for what a worker logs about kinds without a handler: `_Ran.leave` logs it."""
    return "no handler" not in str(record.msg)


def blocking(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an event loop of its own."""
    refuse_event_loop()
    return asyncio.run(make())


def refuse_event_loop() -> None:
    """Raise `UsageError` if an event loop runs in this thread: a blocking call would stop it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("An event loop runs here. Await the call of the same name with a leading a.")


def drain(onefold: Onefold, *, raises: bool = True, concurrency: int = 1) -> list[Job]:
    """`JobRunner(onefold).drain()`."""
    return JobRunner(onefold).drain(raises=raises, concurrency=concurrency)


async def adrain(onefold: Onefold, *, raises: bool = True, concurrency: int = 1) -> list[Job]:
    """`drain`, awaited."""
    return await JobRunner(onefold).adrain(raises=raises, concurrency=concurrency)


def wait(calls: Tenant, job_id: str, *, timeout: timedelta = TEN_SECONDS) -> Job:
    """Wait until a worker has ended a job, and return it: completed, dead or cancelled."""
    context = calls.context
    return context.runtime.run(wait_for_end(context.tenant, job_id, timeout))


async def await_job(calls: Tenant, job_id: str, *, timeout: timedelta = TEN_SECONDS) -> Job:  # noqa: ASYNC109 - as `wait`
    """`wait`, awaited."""
    context = calls.context
    return await context.runtime.arun(wait_for_end(context.tenant, job_id, timeout))


@call
def wipe(onefold: Onefold) -> Procedure[None]:
    """Delete all jobs, keys, queues, schedules and API keys, of all tenants. For tests only."""
    yield Call(onefold.context.duplicate_log.flush)
    yield from transact(empty_tables)


awipe: Final = awaited(wipe)


def enqueued(
    calls: Tenant,
    kind: str | None = None,
    payload: Json | UnsetType = UNSET,
    *,
    within: object = None,
) -> list[Job]:
    """The jobs that are stored, in any state, the oldest first.

    A `payload` that is an object matches jobs whose payloads have these members. `within` is a
    connection with an open transaction: jobs that are not committed yet are visible there only.
    """
    context = _context(calls, within)
    return context.runtime.run(_found(context, kind, payload))


async def aenqueued(
    calls: Tenant,
    kind: str | None = None,
    payload: Json | UnsetType = UNSET,
    *,
    within: object = None,
) -> list[Job]:
    """`enqueued`, awaited."""
    context = _context(calls, within)
    return await context.runtime.arun(_found(context, kind, payload))


def assert_enqueued(
    calls: Tenant, kind: str, payload: Json | UnsetType = UNSET, *, within: object = None
) -> Job:
    """The newest job of this kind whose payload matches; `AssertionError` if there is none."""
    context = _context(calls, within)
    return context.runtime.run(_asserted(context, kind, payload))


async def aassert_enqueued(
    calls: Tenant, kind: str, payload: Json | UnsetType = UNSET, *, within: object = None
) -> Job:
    """`assert_enqueued`, awaited."""
    context = _context(calls, within)
    return await context.runtime.arun(_asserted(context, kind, payload))


def refute_enqueued(
    calls: Tenant, kind: str, payload: Json | UnsetType = UNSET, *, within: object = None
) -> None:
    """`AssertionError` if a job of this kind with a matching payload is enqueued."""
    context = _context(calls, within)
    context.runtime.run(_refuted(context, kind, payload))


async def arefute_enqueued(
    calls: Tenant, kind: str, payload: Json | UnsetType = UNSET, *, within: object = None
) -> None:
    """`refute_enqueued`, awaited."""
    context = _context(calls, within)
    await context.runtime.arun(_refuted(context, kind, payload))


def _context(calls: Tenant, within: object) -> Context:
    return calls.context if within is None else calls.within(within).context


def _found(
    context: Context, kind: str | None = None, payload: object = UNSET
) -> Procedure[list[Job]]:
    found: list[Job] = []
    after: str | None = None
    if payload is not UNSET:
        payload = decode_payload(encode_payload(payload))  # a datetime is stored as text
    while True:
        build = finding(context, {"kind": kind}, limit=PAGE, after=after, newest_first=False)
        page = yield from transact(build, write=False)
        found += [job for job in page.jobs if payload is UNSET or _matches(job.payload, payload)]
        after = page.next
        if after is None:
            return found


def _asserted(context: Context, kind: str, payload: object) -> Procedure[Job]:
    found = yield from _found(context, kind, payload)
    if found:
        return found[-1]
    stored = yield from _found(context)
    raise AssertionError(f"No job {_described(kind, payload)} is enqueued. {_listed(stored)}")


def _refuted(context: Context, kind: str, payload: object) -> Procedure[None]:
    found = yield from _found(context, kind, payload)
    if found:
        raise AssertionError(
            f"No job {_described(kind, payload)} should be enqueued. {_listed(found)}"
        )


def _matches(stored: object, wanted: object) -> bool:
    if isinstance(stored, dict) and isinstance(wanted, dict):
        members = cast("dict[str, object]", stored)
        expected = cast("dict[str, object]", wanted)
        return all(
            name in members and _matches(members[name], value) for name, value in expected.items()
        )
    return stored == wanted


def _described(kind: str, payload: object) -> str:
    return repr(kind) if payload is UNSET else f"{kind!r} with {payload!r}"


def _listed(stored: Sequence[Job]) -> str:
    if not stored:
        return "There are no jobs."
    last = stored[-SHOWN:]
    lines = [f"{job.kind} {job.payload!r} ({job.state})" for job in last]
    most = f", the last {SHOWN} of them" if len(stored) > SHOWN else ""
    return f"There are {len(stored)}{most}:\n  " + "\n  ".join(lines)
