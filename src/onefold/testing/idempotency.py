"""`assert_idempotent`: run a handler with crashes, duplicates and overlaps, and compare results.

Each scenario begins with the same rows, delivers the same work, and must leave the same rows,
jobs and effects as one clean run. The handler runs against the real database, and the job is real.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import copy_context
from datetime import datetime
from functools import cached_property
from inspect import isawaitable, iscoroutinefunction, unwrap
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from onefold.app.onefold import Tenant
from onefold.databases.sqlite.database import SqliteDatabase
from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.jobs.job_function import DeclaredJob, JobCall
from onefold.model.timestamps import MICROSECOND
from onefold.testing.comparison import Comparison, ScenarioResult, received
from onefold.testing.deliver import DeliveredJob
from onefold.testing.drivers import refuse_unseen_connections, traced
from onefold.testing.jobs import enqueued
from onefold.testing.points import Crash, Line, RecordedEffect, Trace, TracedStore, current
from onefold.testing.report import Coverage, Finding, NotIdempotent, advice, without_times
from onefold.testing.requests import RouteRequest
from onefold.testing.snapshot import SqliteSnapshots, snapshots
from onefold.testing.subjects import CallSubject, JobSubject, RouteSubject
from onefold.testing.templates import ComparedItem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future
    from datetime import timedelta

    from onefold.databases import Database
    from onefold.testing.check_options import CheckOptions
    from onefold.testing.points import Point
    from onefold.testing.requests import RouteResponse
    from onefold.testing.snapshot import Snapshots
    from onefold.testing.subjects import Subject

DELIVERIES: Final = 6
"""Deliveries after which work that does not end counts as failed."""
STUCK: Final = 0.5
"""Seconds without progress after which a delivery counts as waiting for another one."""
ATTEMPTS: Final = 100
"""More than a check needs: a job must not be buried for its simulated crashes."""
CLIENT_ERROR: Final = 400

_running = threading.Lock()
"""One check at a time: it replaces methods of the drivers."""


class _Clock:
    """The time of the application, and what the check has added."""

    def __init__(self, base: Callable[[], int]) -> None:
        self.base: Callable[[], int] = base
        self._ahead = 0

    def __call__(self) -> int:
        return self.base() + self._ahead

    def advance(self, duration: timedelta) -> None:
        self._ahead += duration // MICROSECOND


class IdempotencyCheck:
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
        self._given = options.get("given")
        self._ignore = frozenset(options.get("ignore", ()))
        self._recorders = options.get("recorders", ())
        self._recorded = [list(each) for each in self._recorders]
        self._following = range(1, 1 + len(followed_by))
        self._most = options.get("max_crash_points", 200)
        self._random = random.Random(options.get("seed", 0))
        self._loop_of_test = loop
        self._loops = ExitStack()
        connect = options.get("connect")
        self._home = _home(handler, caller)
        self._is_stopped = False
        self._awaited: Future[Any] | None = None
        self._refusal: UsageError | None = None
        self._began = 0
        self._keys: set[tuple[str, str, str]] = set()
        """Generated keys of rows that were there before the handler ran."""
        self.deliveries: int = 0
        self.response: RouteResponse | None = None
        self.onefold: Tenant | None = options.get("onefold")
        if isinstance(handler, DeclaredJob):
            self.onefold = Tenant(cast("DeclaredJob[..., Any]", handler).context)
        clock = None if self.onefold is None else self.onefold.context.database.clock
        self._clock = _Clock(clock or _now)
        self.subject: Subject = self._subject(handler, args, followed_by, connect)
        if connect is not None and not isinstance(self.subject, CallSubject):
            raise ConflictingOptions("connect", "is for functions that take a connection")
        url = options.get("database")
        if url is None and self.onefold is not None:
            url = self.onefold.context.database.url
        if url is None:
            raise UsageError(
                "The check needs the database of the handler: give database=URL, or onefold=."
            )
        # A frozen process that keeps a SQLite file locked keeps others from taking its job.
        self._takes_by_writing = (
            isinstance(self.subject, JobSubject)
            and self.onefold is not None
            and self.onefold.context.database.url == url
        )
        schema = "onefold" if self.onefold is None else self.onefold.context.database.sql.schema
        self.snapshots: Snapshots = snapshots(url, schema)

    def _subject(
        self,
        handler: Any,
        args: tuple[Any, ...],
        followed_by: Sequence[Any],
        connect: Callable[[], Any] | None,
    ) -> Subject:
        if isinstance(handler, DeclaredJob):
            job = cast("DeclaredJob[..., Any]", handler)
            return JobSubject(self, _delivered_jobs(job, args, followed_by))
        if args and isinstance(args[0], RouteRequest):
            return RouteSubject(self, handler, [args[0], *followed_by])
        if callable(handler):
            return CallSubject(self, handler, [args, *followed_by], connect)
        raise InvalidInput("handler", f"must be a job, a route or a function, got {handler!r}")

    # --- what subjects use ----------------------------------------------------------------------

    def advance(self, duration: timedelta) -> None:
        """Move the time, instead of waiting."""
        self._clock.advance(duration)

    def call(self, function: Callable[[], Any], trace: Trace) -> Any:
        """Call a handler, in this thread or in the event loop of the check."""
        self.deliveries += 1
        trace.home = self._home
        token = current.set(trace)
        try:
            if iscoroutinefunction(function):
                value = self._await(_ended(function, trace), trace.loop)
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

    def _refuse_other(self, database: Database) -> None:
        if self.onefold is not None and database is self.onefold.context.database:
            return
        helps = (
            "Use the Onefold of the job"
            if isinstance(self.subject, JobSubject)
            else "Give it to the check with onefold="
        )
        # The handler may catch it.
        self._refusal = UsageError(
            f"The handler writes with an Onefold that the check does not see. {helps}, or replace"
            " it by a test double that declares effect(…)."
        )
        raise self._refusal

    def _await(
        self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop | None = None
    ) -> Any:
        awaited = self._awaited = asyncio.run_coroutine_threadsafe(work, loop or self._loop)
        if self._is_stopped:  # meanwhile
            awaited.cancel()
        return awaited.result()

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._loop_of_test or self._loops.enter_context(_event_loop())

    def stop(self) -> None:
        """End the check before the next delivery, and an async handler that runs now."""
        self._is_stopped = True
        if self._awaited is not None:
            self._awaited.cancel()

    # --- the scenarios --------------------------------------------------------------------------

    def run(self) -> Coverage | NotIdempotent:
        """Run all scenarios, and compare their results. The caller raises an error that it gets."""
        if current.get() is not None:
            raise UsageError("A handler that is checked cannot check another one.")
        with _running:
            return self._check()

    def _check(self) -> Coverage | NotIdempotent:
        started = time.perf_counter()
        self._began = self._clock.base()
        with ExitStack() as stack:
            stack.callback(self.snapshots.close)
            stack.callback(self._restore, self.snapshots.store())  # without the jobs of the check
            stack.enter_context(self._loops)
            patch_imported = stack.enter_context(traced(self._refuse_other))
            if self.onefold is not None:
                context = self.onefold.context
                stack.enter_context(context.override(context.database.url, self._clock))
                if isinstance(context.database, SqliteDatabase):
                    context.database.synchronous = "off"  # no power cut is simulated
                # Put back by the end of the override.
                context.runtime.store = TracedStore(context.database)
            self.subject.prepare()
            patch_imported()  # what it has imported
            self._start = self.snapshots.store()
            return self._run(started, patch_imported)

    def _run(self, started: float, patch_imported: Callable[[], bool]) -> Coverage | NotIdempotent:
        # It looks at all objects of the process.
        is_sqlite = isinstance(self.snapshots, SqliteSnapshots)
        with refuse_unseen_connections() if is_sqlite else nullcontext():
            clean = self._clean(Trace(), self._remember_keys)
        if patch_imported():
            clean = self._clean(Trace(), self._remember_keys)
        if clean.response is not None and clean.response.status >= CLIENT_ERROR:
            raise UsageError(
                f"The route answers the request with status {clean.response.status}:"
                f" {clean.response.body[:200]!r}. The check needs a request that succeeds."
            )
        self._refuse_unknown_columns()
        # The first run may do more: connect, fill caches.
        trace = Trace()
        again = self._scenario([trace], self.snapshots.skip_numbers)
        if again.error is not None:  # a number may be too large for the handler
            trace = Trace()
            again = self._clean(trace)
        compare = Comparison(clean, again, self._keys)
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
        return NotIdempotent(findings, coverage) if findings else coverage

    def _clean(self, trace: Trace, prepare: Callable[[], None] | None = None) -> ScenarioResult:
        clean = self._scenario([trace], prepare)
        if (error := self._refusal or clean.error) is not None:
            raise error
        return clean

    def _refuse_unknown_columns(self) -> None:
        known = {
            name
            for table in self.snapshots.tables()
            for column in table.columns
            for name in (column, f"{table.name}.{column}")
        }
        if unknown := self._ignore - known:
            raise InvalidInput("ignore", f"names columns that no table has: {sorted(unknown)}")

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

    def _restore(self, stored: Any) -> None:
        self.snapshots.restore(stored)
        for recorder, before in zip(self._recorders, self._recorded, strict=True):
            recorder[:] = before

    def _remember_keys(self) -> None:
        self._keys = {
            (row.what, name, row.fields[name]) for row in self._rows() for name in row.generated
        }

    def _begin(self) -> None:
        self._restore(self._start)
        if self._given is not None:
            made = self._given()
            if isawaitable(made):
                self._await(_result_of(made))
        self.response = None

    def _scenario(
        self, traces: list[Trace], prepare: Callable[[], None] | None = None
    ) -> ScenarioResult:
        """Deliver with these traces, and then until the work ends, and what follows it."""
        self._begin()
        if prepare is not None:
            prepare()
        return self._until_ended([], traces, follows=self._following)

    def _until_ended(
        self,
        effects: list[RecordedEffect],
        traces: Sequence[Trace] = (),
        follows: Iterable[int] = (),
    ) -> ScenarioResult:
        error: BaseException | None = None
        ended = False
        rest = list(traces)
        for _ in range(DELIVERIES + len(traces)):
            trace = rest.pop(0) if rest else Trace()
            ended, has_crashed = False, False
            try:
                ended = self._deliver(trace)
                error = None
            except Crash:
                has_crashed = True
            except Exception as raised:  # noqa: BLE001 - the work is delivered again
                error = raised
            effects += trace.effects
            if ended and not rest:
                break
            if ended or has_crashed:
                self.subject.redeliver()
        for number in follows:
            effects += self._follow(number)
        return self._result(effects, error if ended else error or _never_ends())

    def _deliver(self, trace: Trace, number: int = 0) -> bool:
        if self._is_stopped:
            raise asyncio.CancelledError
        return self.subject.deliver(trace, number)

    def _follow(self, number: int) -> list[RecordedEffect]:
        """Deliver other work that follows, cleanly."""
        trace = Trace()
        self._deliver(trace, number)
        return trace.effects

    def _late_duplicate(self) -> ScenarioResult:
        """Deliver the work, what follows it, and the work once more."""
        self._begin()
        first = Trace(is_unreported=True)
        with suppress(Crash):
            self._deliver(first)
        effects = first.effects
        for number in self._following:
            effects += self._follow(number)
        self.subject.redeliver()
        result = self._until_ended(effects)
        result.is_late = True
        return result

    def _overlap(self, pause_at: int) -> ScenarioResult:
        """Pause a delivery at a point, deliver the work to another one, and go on."""
        self._begin()
        first, second = Trace(pause_at=pause_at), Trace()

        def deliver(trace: Trace) -> None:
            try:
                with suppress(Exception, Crash):
                    if trace is second:
                        self.subject.redeliver()
                    self._deliver(trace)
            finally:
                trace.reached.set()

        one = _thread(deliver, first)
        try:
            first.reached.wait(DELIVERIES)
            if not (self._takes_by_writing and self.snapshots.excludes_writers()):
                with _event_loop() if first.blocks_loop else nullcontext() as second.loop:
                    two = _thread(deliver, second)
                    self._wait_for(two, second)
                    first.go_on.set()
                    two.join()
        finally:
            first.go_on.set()
            one.join()
        effects = [*first.effects, *second.effects]
        result = self._until_ended(effects, follows=self._following)
        result.is_overlap = True
        return result

    def _wait_for(self, thread: threading.Thread, trace: Trace) -> None:
        """Wait until a delivery has ended, or cannot continue."""
        reached, since = 0, time.monotonic()
        while thread.is_alive():
            thread.join(0.005)
            if len(trace.points) > reached:
                reached, since = len(trace.points), time.monotonic()
            quiet = time.monotonic() - since
            if quiet > STUCK or self.snapshots.is_waiting(quiet):
                return

    def _result(self, effects: list[RecordedEffect], error: BaseException | None) -> ScenarioResult:
        for number, (recorder, before) in enumerate(
            zip(self._recorders, self._recorded, strict=True), start=1
        ):
            effects += [
                RecordedEffect(f"recorder {number}", repr(each)) for each in recorder[len(before) :]
            ]
        items = [*self._rows(), *self._jobs()]
        items += [
            self._item("effect", each.name, {"name": each.name, "content": each.content})
            for each in received(effects)
        ]
        body = "" if self.response is None else self.response.body.decode("latin-1")
        sent = self._item("response", "response", {"body": body})
        return ScenarioResult(items, effects, self.response, sent, error)

    def _rows(self) -> list[ComparedItem]:
        return [
            self._item(
                f"row of {table.name}",
                table.name,
                {
                    name: _text(value)
                    for name, value in zip(table.columns, row, strict=True)
                    if not self._is_ignored(table.name, name)
                },
                tuple(n for n in table.generated if not self._is_ignored(table.name, n)),
                is_stored=True,
            )
            for table in self.snapshots.tables()
            for row in table.rows
        ]

    def _jobs(self) -> Iterator[ComparedItem]:
        """The jobs that the handler has enqueued; of its own ones the results and steps."""
        if self.onefold is None:
            return
        for job in enqueued(self.onefold):
            if job.id not in self.subject.own_jobs:
                key = "" if job.unique_key is None else f"unique_key={job.unique_key}"
                payload = bytes(job.payload_json).decode()
                fields = {"id": job.id, "kind": job.kind, "payload": payload, "key": key}
                yield self._item("job", job.kind, fields, is_stored=True)
                continue
            if isinstance(job.result_json, msgspec.Raw):
                yield self._item("result", job.kind, {"value": bytes(job.result_json).decode()})
            for step in self.onefold.deliveries.steps(job.id, results=False):
                yield self._item("step", step.name, {"name": step.label})

    def _item(
        self,
        what: str,
        group: str,
        fields: dict[str, str],
        generated: tuple[str, ...] = (),
        *,
        is_stored: bool = False,
    ) -> ComparedItem:
        now = self._clock()
        shown = {name: without_times(text, self._began, now) for name, text in fields.items()}
        return ComparedItem(what, group, shown, generated, is_stored)

    def _is_ignored(self, table: str, column: str) -> bool:
        return column in self._ignore or f"{table}.{column}" in self._ignore


async def _ended(function: Callable[[], Any], trace: Trace) -> Any:
    """Call a handler, and end what it has left open in its own event loop."""
    try:
        return await function()
    finally:
        trace.close()


async def _result_of(awaitable: Any) -> Any:
    return await awaitable


def _delivered_jobs(
    job: DeclaredJob[..., Any], args: tuple[Any, ...], followed_by: Sequence[Any]
) -> list[DeliveredJob]:
    is_call = len(args) == 1 and isinstance(args[0], JobCall)
    calls: list[Any] = [args[0] if is_call else job.call(*args), *followed_by]
    for call in calls:
        if not isinstance(call, JobCall) or call.declaration is not job.declaration:
            raise InvalidInput(
                "followed_by", f"must be calls of the job, job.call(…), got {call!r}"
            )
    return [DeliveredJob(job, call, attempts=ATTEMPTS) for call in calls]


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


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return value.hex() if isinstance(value, bytes) else repr(value)


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


def _home(handler: Any, caller: Line) -> Line:
    """The place of a handler; for an application of a framework that of the test."""
    function = unwrap(handler.function if isinstance(handler, DeclaredJob) else handler)
    code = getattr(function, "__code__", None)
    return caller if code is None else Line(code.co_filename, code.co_firstlineno)
