"""`Schedules`: save, find, pause, run and remove schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onefold.jobs.cron_decorator import DeclaredOptions, DeclaredSchedules
from onefold.jobs.enqueue_options import EMPTY
from onefold.model import checks
from onefold.model.job import Enqueued, Json, NewJob, UniqueWhile
from onefold.model.schedule import Schedule, job_of, new_schedule
from onefold.operations import schedules
from onefold.operations.enqueue import KEEP_HOLDER, enqueue
from onefold.runtime import Procedure, Transact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from typing import Unpack

    from onefold.app.context import Context
    from onefold.databases import Build
    from onefold.model.lifecycle import Retention
    from onefold.model.retry import Backoff
    from onefold.operations.statement import Operation, Sql


class ScheduleOptions(DeclaredOptions, total=False):
    """The options of a schedule and of its jobs, without kind and payload. See `NewJob`."""

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


_OF_SCHEDULE: Final = DeclaredOptions.__optional_keys__


class Schedules:
    """The schedules of one tenant."""

    def __init__(self, context: Context, declared: DeclaredSchedules | None = None) -> None:
        """`declared` are the schedules of `@onefold.cron`."""
        self._context = context
        self.declared: DeclaredSchedules = DeclaredSchedules() if declared is None else declared

    def save(
        self,
        name: str,
        cron: str,
        *,
        kind: str,
        payload: Json = EMPTY,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Enqueue a job at every tick of a cron expression; creates or replaces the schedule.

        Saving the same schedule again changes nothing. A new expression or time zone applies from
        now.
        """
        return self._context.store.transact(self._saving(name, cron, kind, payload, options))[0]

    async def asave(
        self,
        name: str,
        cron: str,
        *,
        kind: str,
        payload: Json = EMPTY,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """`save`, awaited."""
        build = self._saving(name, cron, kind, payload, options)
        return (await self._context.store.atransact(build))[0]

    def _saving(
        self, name: str, cron: str, kind: str, payload: Json, options: ScheduleOptions
    ) -> Build[list[Schedule]]:
        context = self._context
        (new_job,) = context.defaults.filled([_new_job(kind, payload, options)])
        own: dict[str, Any] = {
            option: value for option, value in options.items() if option in _OF_SCHEDULE
        }
        wanted = new_schedule(new_job, context.tenant, name=name, cron=cron, **own)
        return lambda sql: schedules.save(sql, [wanted])

    def store_declared(self) -> list[Schedule]:
        """Store the schedules of `@onefold.cron`, as every worker does when it starts.

        A schedule that `save` has created under the same name stays as it is.
        """
        return self._context.store.transact(self._declaring)

    async def astore_declared(self) -> list[Schedule]:
        """`store_declared`, awaited."""
        return await self._context.store.atransact(self._declaring)

    def _declaring(self, sql: Sql) -> Operation[list[Schedule]]:
        return schedules.save(sql, self.declared.schedules)

    def find(self) -> list[Schedule]:
        """All schedules, by name."""
        return self._context.store.transact(self._finding, write=False)

    async def afind(self) -> list[Schedule]:
        """`find`, awaited."""
        return await self._context.store.atransact(self._finding, write=False)

    def _finding(self, sql: Sql) -> Operation[list[Schedule]]:
        return schedules.find(sql, self._context.tenant)

    def delete(self, name: str) -> bool:
        """Remove a schedule; its jobs stay. False if there is no such schedule.

        One that code declares comes back with the next worker that has the declaration.
        """
        return self._context.store.transact(self._changing(schedules.remove, name))

    async def adelete(self, name: str) -> bool:
        """`delete`, awaited."""
        return await self._context.store.atransact(self._changing(schedules.remove, name))

    def pause(self, name: str) -> bool:
        """Pause a schedule; a new declaration does not resume it. False if it was paused before."""
        return self._context.store.transact(self._changing(schedules.pause, name))

    async def apause(self, name: str) -> bool:
        """`pause`, awaited."""
        return await self._context.store.atransact(self._changing(schedules.pause, name))

    def resume(self, name: str) -> bool:
        """Resume a schedule from now, without the ticks that it has missed.

        False if it was not paused.
        """
        return self._context.store.transact(self._changing(schedules.resume, name))

    async def aresume(self, name: str) -> bool:
        """`resume`, awaited."""
        return await self._context.store.atransact(self._changing(schedules.resume, name))

    def _changing(
        self, change: Callable[[Sql, str, str], Operation[bool]], name: str
    ) -> Build[bool]:
        wanted = checks.name(name, "name")
        return lambda sql: change(sql, self._context.tenant, wanted)

    def run_now(self, name: str) -> Enqueued:
        """Enqueue a job of the schedule at once, beside its ticks, paused or not.

        Its tick is the current time.
        """
        return self._context.runtime.run(self._run_now(name))

    async def arun_now(self, name: str) -> Enqueued:
        """`run_now`, awaited."""
        return await self._context.runtime.arun(self._run_now(name))

    def _run_now(self, name: str) -> Procedure[Enqueued]:
        wanted, tenant = checks.name(name, "name"), self._context.tenant
        schedule: Schedule
        schedule, now = yield Transact(lambda sql: schedules.get(sql, tenant, wanted), write=False)
        # Made before the first try, so that every try stores the same id.
        item = job_of(schedule, now, now=now, run_at=now)
        answers: list[Enqueued]
        with self._context.hooks.enqueueing((item,)) as under_way:
            items = under_way.items
            answers = yield Transact(lambda sql: enqueue(sql, items, KEEP_HOLDER))
            under_way.answers = answers
        return answers[0]


def _new_job(kind: str, payload: Json, options: ScheduleOptions) -> NewJob:
    checks.options(options, ScheduleOptions.__optional_keys__)
    of_job: dict[str, Any] = {
        name: value for name, value in options.items() if name not in _OF_SCHEDULE
    }
    return NewJob(kind, {} if payload is EMPTY else payload, **of_job)
