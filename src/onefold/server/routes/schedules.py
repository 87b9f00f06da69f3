"""Schedules over HTTP: a job at every tick of a cron expression."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, replace

from onefold.errors import ScheduleNotFound
from onefold.model import checks
from onefold.model.checks import qualified, shown
from onefold.model.schedule import Schedule, ScheduleList, ScheduleSettings
from onefold.server.problems import NOT_INSTALLED, QUEUE_NOT_FOUND, SCHEDULE_NOT_FOUND
from onefold.server.request_context import Reply, RouteTable
from onefold.web.problems import Refused, make

if TYPE_CHECKING:
    from onefold.server.request_context import RequestContext

ROUTES: Final = RouteTable("schedules")
_SCHEDULE: Final = "/v1/schedules/{name}"


class ScheduleChange(Schedule, frozen=True, kw_only=True, rename="camel"):
    """A schedule after a pause or a resume."""

    already: bool
    """True if it was in this state before."""


@ROUTES.add("GET", "/v1/schedules", scope="work", answers={200: ScheduleList})
async def list_schedules(request: RequestContext) -> Reply:
    """List all schedules.

    By name, with the next tick of each.
    """
    found = await request.calls.schedules.afind()
    return Reply(200, ScheduleList(tuple(_shown(schedule) for schedule in found)))


@ROUTES.add(
    "PUT",
    _SCHEDULE,
    scope="admin",
    body=ScheduleSettings,
    answers={200: Schedule, 201: Schedule},
    problems=(QUEUE_NOT_FOUND, NOT_INSTALLED),
)
async def put_schedule(request: RequestContext) -> Reply:
    """Create a schedule, or replace its settings.

    A setting that is left out has its default, not its earlier value. The queue must exist. The
    same request again changes nothing; another expression counts from now.
    """
    _check_installed()
    name = _name(request)
    body: ScheduleSettings = request.body
    queue = await request.server.queues.get(request.tenant, checks.name(body.queue, "queue"))
    is_new = name not in {schedule.name for schedule in await request.calls.schedules.afind()}
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
    return Reply(201 if is_new else 200, _shown(schedule))


def _check_installed() -> None:
    if find_spec("cronsim") is None:
        raise Refused(
            make(
                NOT_INSTALLED,
                "This server cannot read cron expressions. Its operator can install what is"
                " missing: pip install 'onefold[cron]'. Nothing was stored.",
            )
        )


@ROUTES.add("GET", _SCHEDULE, scope="work", answers={200: Schedule}, problems=(SCHEDULE_NOT_FOUND,))
async def get_schedule(request: RequestContext) -> Reply:
    """Get a schedule.

    Its settings, and when it ticks next.
    """
    return Reply(200, await _found(request))


@ROUTES.add("DELETE", _SCHEDULE, scope="admin", answers={204: None}, problems=(SCHEDULE_NOT_FOUND,))
async def delete_schedule(request: RequestContext) -> Reply:
    """Remove a schedule; its jobs stay.

    It enqueues no more jobs.
    """
    name = _name(request)
    if not await request.calls.schedules.adelete(name):
        raise ScheduleNotFound(name)
    return Reply(204)


@ROUTES.add(
    "POST",
    f"{_SCHEDULE}/pause",
    scope="admin",
    answers={200: ScheduleChange},
    problems=(SCHEDULE_NOT_FOUND,),
)
async def pause_schedule(request: RequestContext) -> Reply:
    """Pause a schedule.

    It enqueues no jobs until it is resumed. Safe to repeat.
    """
    return await _changed(request, changed=await request.calls.schedules.apause(_name(request)))


@ROUTES.add(
    "POST",
    f"{_SCHEDULE}/resume",
    scope="admin",
    answers={200: ScheduleChange},
    problems=(SCHEDULE_NOT_FOUND,),
)
async def resume_schedule(request: RequestContext) -> Reply:
    """Resume a schedule from now; missed ticks get no job.

    Safe to repeat. The next tick is counted from now.
    """
    return await _changed(request, changed=await request.calls.schedules.aresume(_name(request)))


async def _changed(request: RequestContext, *, changed: bool) -> Reply:
    return Reply(200, ScheduleChange(**asdict(await _found(request)), already=not changed))


def _name(request: RequestContext) -> str:
    return checks.name(request.path["name"], "name")


async def _found(request: RequestContext) -> Schedule:
    name = _name(request)
    for schedule in await request.calls.schedules.afind():
        if schedule.name == name:
            return _shown(schedule)
    raise ScheduleNotFound(name)


def _shown(schedule: Schedule) -> Schedule:
    """With the name that its queue has in its tenant."""
    return replace(schedule, queue=shown(schedule.tenant, schedule.queue))
