"""The calls about schedules, and the chore that gives each tick its job."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from onefold.calls.jobs import DEFAULT_POLICY, EMPTY
from onefold.calls.procedure import Conductor, Procedure, Transaction, once_through
from onefold.model import checks
from onefold.model.event import DuplicatesSuppressed, JobsEnqueued
from onefold.model.job import Enqueued, Json, NewJob, UniqueWhile
from onefold.model.schedule import Broken, CatchUp, Schedule, Tick, Ticked, job_of, wish
from onefold.model.timestamps import MICROSECOND, from_micros
from onefold.operations import schedules
from onefold.operations.enqueue import enqueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from typing import Unpack

    from onefold.model.lifecycle import Retention
    from onefold.model.retry import Backoff
    from onefold.model.schedule import ScheduleSettings
    from onefold.operations.schedules import Look, Looked
    from onefold.operations.statement import Operation, Sql

log: logging.Logger = logging.getLogger("onefold")


class ScheduledOptions(TypedDict, total=False):
    """What the jobs of a schedule may be told, beside kind and payload. See `NewJob`."""

    queue: str
    priority: int
    delay: timedelta | None
    max_attempts: int
    unique_key: str | None
    unique_while: UniqueWhile | None
    unique_for: timedelta | None
    across_kinds: bool
    backoff: Backoff | None
    retention: Retention | None
    timeout: timedelta | None
    group_key: str | None
    tags: Sequence[str]
    metadata: Mapping[str, Json] | None
    store_result: bool | None


class DeclaredOptions(TypedDict, total=False):
    """What is said of a schedule itself."""

    tz: str
    """The zone whose clocks it goes by, as the IANA database names it; UTC."""
    catch_up: CatchUp
    """What becomes of ticks that nobody was there for: skip, latest (the default) or all."""
    catch_up_most: int | None
    """With `all`, how many at most: the newest; 100."""


class ScheduleOptions(ScheduledOptions, DeclaredOptions, total=False):
    """Everything that `schedule` may be told by name."""


class ScheduleCalls:
    """Make, change, pause and remove schedules."""

    _conductor: Conductor
    _tenant: str

    def schedule(
        self,
        name: str,
        cron: str,
        *,
        kind: str,
        payload: Json = EMPTY,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Enqueue a job at every tick of a cron expression; makes or changes the one of that name.

        Saying the same again changes nothing. Another expression, or zone, counts from now.
        """
        wanted = self._wish(name, cron, _new_job(kind, payload, options), options)
        return self._conductor.run(save([wanted]))[0]

    async def aschedule(
        self,
        name: str,
        cron: str,
        *,
        kind: str,
        payload: Json = EMPTY,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """`schedule`, awaited."""
        wanted = self._wish(name, cron, _new_job(kind, payload, options), options)
        return (await self._conductor.arun(save([wanted])))[0]

    def _wish(
        self, name: str, cron: str, new_job: NewJob, options: DeclaredOptions
    ) -> ScheduleSettings:
        (filled,) = self._conductor.defaults.filled([new_job])
        return wished(self._tenant, name, cron, filled, options)

    def schedules(self) -> list[Schedule]:
        """All there are, by name."""
        return self._conductor.run(_find(self._tenant))

    async def aschedules(self) -> list[Schedule]:
        """`schedules`, awaited."""
        return await self._conductor.arun(_find(self._tenant))

    def unschedule(self, name: str) -> bool:
        """Remove a schedule; its jobs stay. False where there was none.

        One that code declares comes back with the next worker that has the declaration.
        """
        return self._conductor.run(_change(schedules.remove, self._tenant, name))

    async def aunschedule(self, name: str) -> bool:
        """`unschedule`, awaited."""
        return await self._conductor.arun(_change(schedules.remove, self._tenant, name))

    def pause_schedule(self, name: str) -> bool:
        """Let a schedule rest, also over new declarations. False where it did already."""
        return self._conductor.run(_change(schedules.pause, self._tenant, name))

    async def apause_schedule(self, name: str) -> bool:
        """`pause_schedule`, awaited."""
        return await self._conductor.arun(_change(schedules.pause, self._tenant, name))

    def resume_schedule(self, name: str) -> bool:
        """Let a schedule go on from now: what it slept through is not made up for.

        False where it was not paused.
        """
        return self._conductor.run(_change(schedules.resume, self._tenant, name))

    async def aresume_schedule(self, name: str) -> bool:
        """`resume_schedule`, awaited."""
        return await self._conductor.arun(_change(schedules.resume, self._tenant, name))

    def run_now(self, name: str) -> Enqueued:
        """Enqueue a job of the schedule at once, beside its ticks, paused or not.

        Its tick is the present moment.
        """
        return self._conductor.run(_run_now(self._conductor, self._tenant, name))

    async def arun_now(self, name: str) -> Enqueued:
        """`run_now`, awaited."""
        return await self._conductor.arun(_run_now(self._conductor, self._tenant, name))


def wished(
    tenant: str,
    name: str,
    cron: str,
    new_job: NewJob,
    options: DeclaredOptions,
    *,
    declared: bool = False,
) -> ScheduleSettings:
    """Check a schedule, and say what its options leave unsaid."""
    return wish(
        new_job,
        tenant,
        name=name,
        cron=cron,
        tz=options.get("tz", "UTC"),
        catch_up=options.get("catch_up", "latest"),
        catch_up_most=options.get("catch_up_most"),
        declared=declared,
    )


def _new_job(kind: str, payload: Json, options: ScheduleOptions) -> NewJob:
    checks.options(options, ScheduleOptions.__optional_keys__)
    said: dict[str, Any] = {
        name: value for name, value in options.items() if name in ScheduledOptions.__optional_keys__
    }
    return NewJob(kind, {} if payload is EMPTY else payload, **said)


def save(wishes: Sequence[ScheduleSettings]) -> Procedure[list[Schedule]]:
    """Make schedules, or change them; answers with what stands now."""
    return once_through(lambda sql: schedules.save(sql, wishes))


def _find(tenant: str) -> Procedure[list[Schedule]]:
    return once_through(lambda sql: schedules.find(sql, tenant), write=False)


def _change(
    change: Callable[[Sql, str, str], Operation[bool]], tenant: str, name: str
) -> Procedure[bool]:
    wanted = checks.name(name, "name")
    return once_through(lambda sql: change(sql, tenant, wanted))


def _run_now(conductor: Conductor, tenant: str, name: str) -> Procedure[Enqueued]:
    wanted = checks.name(name, "name")
    schedule: Schedule
    schedule, now = yield Transaction(lambda sql: schedules.get(sql, tenant, wanted), write=False)
    # Made before the first try, so that every try stores the same id.
    item = job_of(schedule, now, run_at=now)
    answers: list[Enqueued]
    with conductor.hooks.enqueueing((item,)) as under_way:
        items = under_way.items
        answers = yield Transaction(lambda sql: enqueue(sql, items, DEFAULT_POLICY))
        under_way.answers = answers
    return answers[0]


class Ticker:
    """Gives ticks that are due their jobs. Any process may, at any time: a tick gets one job."""

    def __init__(self, conductor: Conductor) -> None:
        """On the database of `conductor`."""
        self._conductor = conductor
        self._told: set[Broken] = set()

    def tick(self) -> Procedure[Ticked]:
        """Look at all schedules once."""
        look: Look = yield Transaction(schedules.look, write=False)
        ticks: list[Tick] = []
        broken: list[Broken] = []
        for shard in look.due:
            cursor: tuple[str, str] | None = ("", "")
            while cursor is not None:
                looked: Looked = yield Transaction(partial(_tick, shard=shard, cursor=cursor))
                ticks += looked.ticks
                broken += looked.broken
                cursor = looked.cursor
        if look.due:
            look = yield Transaction(schedules.look, write=False)
        self._warn(broken)
        self._tell(ticks)
        if look.next_at is None:
            return Ticked(tuple(ticks), broken=tuple(broken))
        wait = (look.next_at - look.now) * MICROSECOND
        return Ticked(tuple(ticks), from_micros(look.next_at), wait, tuple(broken))

    def _warn(self, broken: Sequence[Broken]) -> None:
        """Once: the look is repeated, and another process may be able to read it."""
        for each in broken:
            if each not in self._told:
                self._told.add(each)
                log.warning(
                    "The schedule %r cannot be read here and waits: %s", each.schedule, each.reason
                )

    def _tell(self, ticks: Sequence[Tick]) -> None:
        hooks = self._conductor.hooks
        if not hooks.wanted:
            return
        counts = Counter(
            (
                DuplicatesSuppressed if tick.enqueued.duplicate else JobsEnqueued,
                tick.kind,
                tick.queue,
                tick.tenant,
            )
            for tick in ticks
        )
        for (event, kind, queue, tenant), count in counts.items():
            hooks.tell(event(kind, queue, count, tenant))


def _tick(sql: Sql, *, shard: int, cursor: tuple[str, str]) -> Operation[Looked]:
    return schedules.tick(sql, shard, cursor)
