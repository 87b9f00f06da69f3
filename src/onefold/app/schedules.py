"""`Schedules`: save, find, pause, run and remove schedules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from onefold.app.context import Noun
from onefold.jobs.cron_decorator import DeclaredOptions, DeclaredSchedules
from onefold.jobs.enqueue_options import EMPTY
from onefold.model import checks
from onefold.model.job import Enqueued, Json, NewJob, UniqueWhile
from onefold.model.schedule import Schedule, job_of, new_schedule
from onefold.operations import schedules
from onefold.operations.enqueue import KEEP_HOLDER, enqueue
from onefold.runtime import Procedure, awaited, call, transact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from typing import Unpack

    from onefold.app.context import Context
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


class Schedules(Noun):
    """The schedules of one tenant."""

    def __init__(self, context: Context, declared: DeclaredSchedules | None = None) -> None:
        """`declared` are the schedules of `@onefold.cron`."""
        super().__init__(context)
        self.declared: DeclaredSchedules = DeclaredSchedules() if declared is None else declared

    @call
    def save(
        self,
        name: str,
        cron: str,
        *,
        kind: str,
        payload: Json = EMPTY,
        **options: Unpack[ScheduleOptions],
    ) -> Procedure[Schedule]:
        """Enqueue a job at every tick of a cron expression; creates or replaces the schedule.

        Saving the same schedule again changes nothing. A new expression or time zone applies from
        now.
        """
        context = self._context
        (new_job,) = context.defaults.filled([_new_job(kind, payload, options)])
        own: dict[str, Any] = {
            option: value for option, value in options.items() if option in _OF_SCHEDULE
        }
        wanted = new_schedule(new_job, context.tenant, name=name, cron=cron, **own)
        return (yield from transact(lambda sql: schedules.save(sql, [wanted])))[0]

    asave: Final = awaited(save)

    @call
    def store_declared(self) -> Procedure[list[Schedule]]:
        """Store the schedules of `@onefold.cron`, as every worker does when it starts.

        A schedule that `save` has created under the same name stays as it is.
        """
        return transact(lambda sql: schedules.save(sql, self.declared.schedules))

    astore_declared: Final = awaited(store_declared)

    @call
    def find(self) -> Procedure[list[Schedule]]:
        """All schedules, by name."""
        found: list[Schedule] = []
        after: str | None = None
        while True:
            page = yield from transact(
                partial(schedules.find, tenant=self._context.tenant, after=after), write=False
            )
            found += page.schedules
            after = page.next
            if after is None:
                return found

    afind: Final = awaited(find)

    @call
    def delete(self, name: str) -> Procedure[bool]:
        """Remove a schedule; its jobs stay. False if there is no such schedule.

        One that code declares comes back with the next worker that has the declaration.
        """
        return self._change(schedules.remove, name)

    adelete: Final = awaited(delete)

    @call
    def pause(self, name: str) -> Procedure[bool]:
        """Pause a schedule; a new declaration does not resume it. False if it was paused before."""
        return self._change(schedules.pause, name)

    apause: Final = awaited(pause)

    @call
    def resume(self, name: str) -> Procedure[bool]:
        """Resume a schedule from now, without the ticks that it has missed.

        False if it was not paused.
        """
        return self._change(schedules.resume, name)

    aresume: Final = awaited(resume)

    def _change(
        self, change: Callable[[Sql, str, str], Operation[bool]], name: str
    ) -> Procedure[bool]:
        wanted = checks.name(name, "name")
        return transact(lambda sql: change(sql, self._context.tenant, wanted))

    @call
    def run_now(self, name: str) -> Procedure[Enqueued]:
        """Enqueue a job of the schedule at once, beside its ticks, paused or not.

        Its tick is the current time.
        """
        wanted, tenant = checks.name(name, "name"), self._context.tenant
        schedule, now = yield from transact(
            lambda sql: schedules.get(sql, tenant, wanted), write=False
        )
        # Made before the first try, so that every try stores the same id.
        item = job_of(schedule, now, now=now, run_at=now)
        with self._context.hooks.enqueueing((item,)) as under_way:
            items = under_way.items
            answers = yield from transact(lambda sql: enqueue(sql, items, KEEP_HOLDER))
            under_way.answers = answers
        return answers[0]

    arun_now: Final = awaited(run_now)


def _new_job(kind: str, payload: Json, options: ScheduleOptions) -> NewJob:
    checks.options(options, ScheduleOptions.__optional_keys__)
    of_job: dict[str, Any] = {
        name: value for name, value in options.items() if name not in _OF_SCHEDULE
    }
    return NewJob(kind, {} if payload is EMPTY else payload, **of_job)
