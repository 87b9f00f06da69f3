"""Schedules over HTTP: a job at every tick of a cron expression."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from msgspec.structs import asdict, replace

from onefold.errors import ScheduleNotFound
from onefold.model import checks
from onefold.model.checks import qualified, shown
from onefold.model.schedule import Schedule, SchedulePage, ScheduleSettings
from onefold.model.wire import Body
from onefold.operations import schedules
from onefold.server.problems import NOT_INSTALLED, QUEUE_NOT_FOUND, SCHEDULE_NOT_FOUND
from onefold.server.request_context import RequestContext
from onefold.server.routing import Calls, Created, Name, RouteTable
from onefold.web.problems import Refused, make

ROUTES: Final = RouteTable("schedules")
_SCHEDULE: Final = "/v1/schedules/{name}"


class ScheduleChange(Schedule, frozen=True, kw_only=True, rename="camel"):
    """A schedule after a pause or a resume."""

    already: bool
    """True if it was in this state before."""


class SchedulesQuery(Body):
    """A page of schedules."""

    after: str | None = None
    """The `next` of the page before."""


@ROUTES.add("GET", "/v1/schedules", scope="work")
async def list_schedules(calls: Calls, query: SchedulesQuery) -> SchedulePage:
    """List schedules by name.

    With the next tick of each. One page per request, of 32 schedules at most; it ends after 4 MiB.
    """
    page = await calls.context.store.atransact(
        partial(schedules.find, tenant=calls.context.tenant, after=query.after), write=False
    )
    return replace(page, schedules=tuple(map(_shown, page.schedules)))


@ROUTES.add("PUT", _SCHEDULE, scope="admin", problems=(QUEUE_NOT_FOUND, NOT_INSTALLED))
async def put_schedule(
    request: RequestContext, name: Name, body: ScheduleSettings
) -> Created[Schedule]:
    """Create a schedule, or replace its settings.

    A setting that is left out has its default, not its earlier value. The queue must exist. The
    same request again changes nothing; another expression counts from now.
    """
    _check_installed()
    queue = await request.server.queues.get(request.tenant, checks.name(body.queue, "queue"))
    is_new = False
    try:
        await get_schedule(request.calls, name)
    except ScheduleNotFound:
        is_new = True
    retention = queue.retention
    if body.retention is not None:
        retention = body.retention.over(retention)
    options: dict[str, Any] = asdict(body)
    options["payload"] = options.pop("payload_json")
    options |= {
        "kind": body.queue if body.kind is None else body.kind,
        "queue": qualified(request.tenant, body.queue),
        "max_attempts": body.max_attempts or queue.max_attempts,
        "backoff": body.backoff or queue.backoff,
        "retention": retention,
    }
    schedule = await request.calls.schedules.asave(name, **options)
    return Created(_shown(schedule), is_new)


def _check_installed() -> None:
    if find_spec("cronsim") is None:
        raise Refused(
            make(
                NOT_INSTALLED,
                "This server cannot read cron expressions. Its operator can install what is"
                " missing: pip install 'onefold[cron]'. Nothing was stored.",
            )
        )


@ROUTES.add("GET", _SCHEDULE, scope="work", problems=(SCHEDULE_NOT_FOUND,))
async def get_schedule(calls: Calls, name: Name) -> Schedule:
    """Get a schedule.

    Its settings, and when it ticks next.
    """
    schedule, _ = await calls.context.store.atransact(
        partial(schedules.get, tenant=calls.context.tenant, name=name), write=False
    )
    return _shown(schedule)


@ROUTES.add("DELETE", _SCHEDULE, scope="admin", problems=(SCHEDULE_NOT_FOUND,))
async def delete_schedule(calls: Calls, name: Name) -> None:
    """Remove a schedule; its jobs stay.

    It enqueues no more jobs.
    """
    if not await calls.schedules.adelete(name):
        raise ScheduleNotFound(name)


@ROUTES.add("POST", f"{_SCHEDULE}/pause", scope="admin", problems=(SCHEDULE_NOT_FOUND,))
async def pause_schedule(calls: Calls, name: Name) -> ScheduleChange:
    """Pause a schedule.

    It enqueues no jobs until it is resumed. Safe to repeat.
    """
    changed = await calls.schedules.apause(name)
    return ScheduleChange(**asdict(await get_schedule(calls, name)), already=not changed)


@ROUTES.add("POST", f"{_SCHEDULE}/resume", scope="admin", problems=(SCHEDULE_NOT_FOUND,))
async def resume_schedule(calls: Calls, name: Name) -> ScheduleChange:
    """Resume a schedule from now; missed ticks get no job.

    Safe to repeat. The next tick is counted from now.
    """
    changed = await calls.schedules.aresume(name)
    return ScheduleChange(**asdict(await get_schedule(calls, name)), already=not changed)


def _shown(schedule: Schedule) -> Schedule:
    """With the name that its queue has in its tenant."""
    return replace(schedule, queue=shown(schedule.tenant, schedule.queue))
