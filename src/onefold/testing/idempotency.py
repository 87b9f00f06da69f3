"""`assert_idempotent`: run a handler with crashes, duplicates and overlaps, and compare results.

Each scenario begins with the same rows, delivers the same work, and must leave the same rows,
jobs and effects as one clean run. The handler runs against the real database, and the job is real.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction, unwrap
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from onefold.app.onefold import Tenant
from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.jobs.job_function import DeclaredJob
from onefold.model import checks
from onefold.model.timestamps import MICROSECOND
from onefold.testing.drivers import refuse_unseen_connections, traced
from onefold.testing.jobs import enqueued, refuse_event_loop
from onefold.testing.points import Crash, Line, RecordedEffect, Trace, TracedStore, current
from onefold.testing.report import (
    Comparison,
    Coverage,
    Finding,
    NotIdempotent,
    ScenarioResult,
    advice,
)
from onefold.testing.requests import RouteRequest
from onefold.testing.snapshot import normalized, snapshots
from onefold.testing.subjects import CallSubject, JobSubject, RouteSubject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
    from datetime import timedelta
    from typing import Unpack

    from onefold.testing.points import Point
    from onefold.testing.requests import RouteResponse
    from onefold.testing.snapshot import Snapshots
    from onefold.testing.subjects import Subject

DELIVERIES: Final = 6
"""Deliveries after which work that does not end counts as failed."""
STUCK: Final = 0.25
"""Seconds after which a second delivery counts as waiting for the first one."""


class _Clock:
    """The time of the application, and what the check has added."""

    def __init__(self, base: Callable[[], int]) -> None:
        self._base = base
        self._ahead = 0

    def __call__(self) -> int:
        return self._base() + self._ahead

    def advance(self, duration: timedelta) -> None:
        self._ahead += duration // MICROSECOND


class _Check:
    """One call of `assert_idempotent`."""

    def __init__(
        self,
        handler: Any,
        args: tuple[Any, ...],
        options: CheckOptions,
        loop: asyncio.AbstractEventLoop | None,
        caller: Line,
    ) -> None:
        followed_by = options.get("followed_by", ())
        recorders = options.get("recorders", ())
        self._given = options.get("given")
        self._ignore = frozenset(options.get("ignore", ()))
        self._recorders = recorders
        self._recorded = [list(each) for each in recorders]
        self._following = range(1, 1 + len(followed_by))
        self._most = options.get("max_crash_points", 200)
        self._random = random.Random(options.get("seed", 0))
        self._loop = loop
        self._connect = options.get("connect")
        self._home = _home(handler, caller)
        self.deliveries = 0
        self.response: RouteResponse | None = None
        self.onefold: Tenant | None = options.get("onefold")
        if isinstance(handler, DeclaredJob):
            job = cast("DeclaredJob[..., Any]", handler)
            self.onefold = Tenant(job.context)
            self.subject: Subject = JobSubject(self, self.onefold, job, args)
            if followed_by:
                raise ConflictingOptions(
                    "followed_by", "is for routes and functions: a completed job is not run again"
                )
        elif args and isinstance(args[0], RouteRequest):
            self.subject = RouteSubject(self, handler, [args[0], *followed_by])
        elif callable(handler):
            calls = [args, *followed_by]
            self.subject = CallSubject(self, handler, calls)
        else:
            raise InvalidInput("handler", f"must be a job, a route or a function, got {handler!r}")
        url = options.get("database")
        if url is None and self.onefold is not None:
            url = self.onefold.context.database.url
        if url is None:
            raise UsageError(
                "The check needs the database of the handler: give database=URL, or onefold=."
            )
        self.url: str = url
        schema = "onefold" if self.onefold is None else self.onefold.context.database.sql.schema
        self._before: Snapshots = snapshots(url, schema)
        self._snapshots: Snapshots = snapshots(url, schema)
        self._clock: _Clock | None = None

    # --- what subjects use ----------------------------------------------------------------------

    def advance(self, duration: timedelta) -> None:
        if self._clock is not None:
            self._clock.advance(duration)

    def connect(self) -> Any:
        return self._snapshots.connect() if self._connect is None else self._connect()

    async def aconnect(self) -> Any:
        if self._connect is not None:
            made = self._connect()
            return await made if isawaitable(made) else made
        if self.url.startswith("sqlite"):
            raise UsageError(
                "An async function needs a connection: give connect=lambda: aiosqlite.connect(…)."
            )
        import psycopg

        return await psycopg.AsyncConnection.connect(self.url)

    def call(self, function: Callable[[], Any], trace: Trace) -> Any:
        """Call a handler, in this thread or in the event loop of the check."""
        self.deliveries += 1
        trace.home = self._home
        token = current.set(trace)
        try:
            if iscoroutinefunction(function):
                assert self._loop is not None
                work = _ended(function, trace)
                value = asyncio.run_coroutine_threadsafe(work, self._loop).result()
            else:
                value = function()
        except BaseException:
            # A task group wraps what its tasks raise.
            if trace.is_dead:
                raise Crash from None
            raise
        finally:
            current.reset(token)
            trace.close()
        if trace.is_dead:
            raise Crash  # the handler has caught it
        return value

    # --- the scenarios --------------------------------------------------------------------------

    def run(self) -> Coverage:
        started = time.perf_counter()
        self._before.store()
        self.subject.prepare()
        self._snapshots.store()
        with ExitStack() as stack:
            if self._loop is None:
                self._loop = stack.enter_context(_event_loop())
            patch_imported = stack.enter_context(traced())
            stack.callback(self._before.restore)  # without the job of the check
            stack.callback(self._restore)
            if self.onefold is not None:
                database = self.onefold.context.database
                self._clock = _Clock(database.clock or _now)
                context = self.onefold.context
                stack.enter_context(context.override(database.url, self._clock))
                # Put back by the end of the override.
                context.runtime.store = TracedStore(context.database)
            return self._run(started, patch_imported)

    def _run(self, started: float, patch_imported: Callable[[], bool]) -> Coverage:
        with refuse_unseen_connections():
            clean = self._scenario([Trace()])
        if patch_imported():
            clean = self._scenario([Trace()])
        if clean.error is not None:
            raise clean.error
        # The first run may do more: connect, fill caches.
        trace = Trace()
        compare = Comparison(clean, self._scenario([trace]))
        points = trace.points
        if not points:
            raise UsageError(
                "The check has seen no statement, request or effect of the handler, so it proves"
                " nothing. Declare what the handler does with effect(…)."
            )
        crashes = _crash_points(points)
        chosen = self._some(crashes)
        findings: list[Finding] = []
        for scenario, point, result in self._scenarios(points, chosen):
            if differences := compare(result):
                helps = advice(differences, result, clean)
                findings.append(Finding(scenario, point, differences, helps))
        coverage = Coverage(
            len(chosen), self.deliveries, time.perf_counter() - started, len(crashes) - len(chosen)
        )
        if findings:
            raise NotIdempotent(findings, coverage)
        return coverage

    def _scenarios(
        self, points: Sequence[Point], chosen: Iterable[int]
    ) -> Iterator[tuple[str, Point | None, ScenarioResult]]:
        unreported = [Trace(is_unreported=True), Trace()]
        yield "Delivered twice, one after the other", None, self._scenario(unreported)
        for number in chosen:
            crashed = self._scenario([Trace(crash_at=number)])
            yield "Killed here, and delivered again", points[number], crashed
        answered = [point for point in points if point.kind == "call" and point.when == "after"]
        for number, point in enumerate(answered):
            lost = self._scenario([Trace(lose=number)])
            yield "The answer to this call was lost, and the work delivered again", point, lost
        for number in self._some(_pause_points(points)):
            yield (
                "Frozen here, delivered to another process meanwhile, and awake again",
                points[number],
                self._overlap(number),
            )
        if self._following:
            late = self._late_duplicate()
            yield "Delivered again after the work that followed it", None, late

    def _some(self, points: list[int]) -> list[int]:
        if len(points) <= self._most:
            return points
        return sorted(self._random.sample(points, self._most))

    def _restore(self) -> None:
        self._snapshots.restore()
        for recorder, before in zip(self._recorders, self._recorded, strict=True):
            recorder[:] = before

    def _begin(self) -> None:
        self._restore()
        if self._given is not None:
            self._given()
        self.response = None
        self.subject.begin()

    def _scenario(self, traces: list[Trace]) -> ScenarioResult:
        """Deliver with these traces, and then until the work ends."""
        self._begin()
        effects: list[RecordedEffect] = []
        error: BaseException | None = None
        ended = False
        rest = list(traces)
        for _ in range(DELIVERIES + len(traces)):
            trace = rest.pop(0) if rest else Trace()
            ended = False
            try:
                ended = self.subject.deliver(trace)
                error = None
            except Crash:
                self.subject.redeliver()
            except Exception as raised:  # noqa: BLE001 - the work is delivered again
                error = raised
            effects += trace.effects
            if ended and not rest:
                break
            if ended:
                self.subject.redeliver()
        for number in self._following:
            effects += self._follow(number)
        return self._result(effects, error if ended else error or _never_ends())

    def _follow(self, number: int) -> list[RecordedEffect]:
        """Deliver other work that follows, cleanly."""
        trace = Trace()
        self.subject.deliver(trace, number)
        return trace.effects

    def _late_duplicate(self) -> ScenarioResult:
        """Deliver the work, what follows it, and the work once more."""
        self._begin()
        effects: list[RecordedEffect] = []
        for number in (0, *self._following, 0):
            effects += self._follow(number)
        return self._result(effects, None)

    def _overlap(self, pause_at: int) -> ScenarioResult:
        """Pause a delivery at a point, deliver the work to another one, and go on."""
        self._begin()
        first, second = Trace(pause_at=pause_at), Trace()

        def deliver(trace: Trace) -> None:
            try:
                with suppress(Exception, Crash):
                    if trace is second:
                        self.subject.redeliver()
                    self.subject.deliver(trace)
            finally:
                trace.reached.set()

        one = _thread(deliver, first)
        first.reached.wait(DELIVERIES)
        # It may have to wait for locks of the first one, also to take the job.
        two = _thread(deliver, second)
        two.join(STUCK)
        first.go_on.set()
        one.join()
        two.join()
        effects = [*first.effects, *second.effects]
        error: BaseException | None = None
        for _ in range(DELIVERIES):
            trace = Trace()
            try:
                if self.subject.deliver(trace):
                    effects += trace.effects
                    error = None
                    break
            except Exception as raised:  # noqa: BLE001 - the work is delivered again
                error = raised
            effects += trace.effects
        else:
            error = error or _never_ends()
        for number in self._following:
            effects += self._follow(number)
        return self._result(effects, error)

    def _result(self, effects: list[RecordedEffect], error: BaseException | None) -> ScenarioResult:
        tables = normalized(self._snapshots.tables(), self._is_ignored)
        jobs: list[tuple[str, str]] = []
        if self.onefold is not None:
            own = self.subject.own_jobs
            jobs = [
                (job.kind, bytes(job.payload_json).decode())
                for job in enqueued(self.onefold)
                if job.id not in own
            ]
        for number, (recorder, before) in enumerate(
            zip(self._recorders, self._recorded, strict=True), start=1
        ):
            effects += [
                RecordedEffect(f"recorder {number}", repr(each)) for each in recorder[len(before) :]
            ]
        return ScenarioResult(tables, jobs, effects, self.response, error)

    def _is_ignored(self, table: str, column: str) -> bool:
        return column in self._ignore or f"{table}.{column}" in self._ignore


async def _ended(function: Callable[[], Awaitable[Any]], trace: Trace) -> Any:
    """Call a handler, and end what it has left open in its own event loop."""
    try:
        return await function()
    finally:
        trace.close()


@contextmanager
def _event_loop() -> Generator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _thread(work: Callable[[Trace], None], trace: Trace) -> threading.Thread:
    thread = threading.Thread(target=copy_context().run, args=(work, trace), daemon=True)
    thread.start()
    return thread


def _never_ends() -> UsageError:
    return UsageError(f"It was busy or deferred in {DELIVERIES} deliveries, one after the other.")


def _now() -> int:
    return time.time_ns() // 1000


def _crash_points(points: Sequence[Point]) -> list[int]:
    """The points that differ: before one step is the same moment as after the step before it."""
    return [number for number, point in enumerate(points) if not number or point.when == "after"]


def _pause_points(points: Sequence[Point]) -> list[int]:
    """Before each step, when all code of the application before it has run; and after the last.

    Not at effects: what another delivery does depends on rows, and they are the same as before the
    next step. An async handler could not wait there.
    """
    steps = [n for n, point in enumerate(points) if point.kind != "effect"]
    return [n for n in steps if points[n].when == "before" or n == steps[-1]]


# --- the call -----------------------------------------------------------------------------------


class CheckOptions(TypedDict, total=False):
    """The options of `assert_idempotent`."""

    given: Callable[[], Any] | None
    """Called before each scenario, after the rows were put back: resets doubles, adds rows."""
    onefold: Tenant | None
    """The Onefold of a route or a function. A job knows its own."""
    database: str | None
    """The URL of the database whose tables are compared; by default that of `onefold`."""
    connect: Callable[[], Any] | None
    """Opens the connection of a function; by default sqlite3 or psycopg."""
    ignore: Iterable[str]
    """Columns that are not compared: `updated_at`, or `orders.updated_at`."""
    recorders: Sequence[list[Any]]
    """Lists of test doubles. What is appended counts as an effect."""
    followed_by: Sequence[Any]
    """Requests, or arguments of the function, that follow: a duplicate may come after them."""
    max_crash_points: int
    """By default 200; of more, so many are chosen at random."""
    seed: int
    """Of the random choice."""


def assert_idempotent(handler: Any, *args: Any, **options: Unpack[CheckOptions]) -> Coverage:
    """Prove that work may be delivered twice, also by processes that die: see the guide.

    `handler` is a declared job with its arguments (or with `job.call(…)`), an ASGI or WSGI
    application with a `RouteRequest`, or a function whose first parameter is a connection.

    Raises `NotIdempotent`, whose message is a report. Returns what was tried. Async handlers run in
    an event loop of their own; `aassert_idempotent` runs them in the one of the test.
    """
    refuse_event_loop()
    return _check(handler, args, options, None).run()


async def aassert_idempotent(handler: Any, *args: Any, **options: Unpack[CheckOptions]) -> Coverage:
    """`assert_idempotent`, awaited: async handlers run in this event loop."""
    check = _check(handler, args, options, asyncio.get_running_loop())
    return await asyncio.to_thread(check.run)


def _check(
    handler: Any,
    args: tuple[Any, ...],
    options: CheckOptions,
    loop: asyncio.AbstractEventLoop | None,
) -> _Check:
    checks.options(options, CheckOptions.__optional_keys__)
    frame = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    caller = Line(frame.f_code.co_filename, frame.f_lineno)
    return _Check(handler, args, options, loop, caller)


def _home(handler: Any, caller: Line) -> Line:
    """The place of a handler; for an application of a framework that of the test."""
    function = unwrap(handler.function if isinstance(handler, DeclaredJob) else handler)
    code = getattr(function, "__code__", None)
    return caller if code is None else Line(code.co_filename, code.co_firstlineno)
