"""Schedules over HTTP: a job at every tick of a cron expression."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from onefold.errors import ScheduleNotFound
from onefold.model import checks
from onefold.model.checks import qualified, shown
from onefold.model.job_options import TAGS, read_options
from onefold.model.new_job import SCOPES
from onefold.model.schedule import CatchUp, Template
from onefold.model.timestamps import Iso
from onefold.model.wire import (
    Answer,
    Attempts,
    Body,
    Priority,
    Seconds,
    iso,
    iso_or_none,
    optional_duration,
)
from onefold.server.problems import NOT_INSTALLED
from onefold.server.request_context import Reply, Route
from onefold.web.problems import Refused, make

if TYPE_CHECKING:
    from onefold.app.schedules import ScheduleOptions
    from onefold.model.job import UniqueWhile
    from onefold.model.queue import QueueSettings
    from onefold.model.schedule import Schedule
    from onefold.server.request_context import RequestContext

_WHILE: Final[dict[int, UniqueWhile]] = {
    SCOPES["queued"]: "queued",
    SCOPES["active"]: "active",
    SCOPES["exists"]: "exists",
}


class ScheduleBody(Body):
    """A whole schedule: a member that is left out has its default, not its earlier value."""

    cron: str
    """Five fields, or a name like `@daily`."""
    queue: str
    """The queue of its jobs; the settings of this queue apply to them."""
    kind: str | None = None
    """By default the name of the queue."""
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    tz: str = "UTC"
    """The time zone of the expression, by its IANA name."""
    catch_up: CatchUp = "latest"
    """What happens to missed ticks."""
    catch_up_most: int | None = None
    """With `all`, how many ticks at most: the newest."""
    priority: Priority = 0
    """Lower runs first."""
    delay: Seconds | None = None
    max_attempts: Attempts | None = None
    """By default the queue's."""
    unique_key: str | None = None
    unique_while: Literal["queued", "active", "exists"] | None = None
    unique_for: Seconds | None = None
    group_key: str | None = None
    tags: Annotated[tuple[str, ...], msgspec.Meta(max_length=TAGS)] = ()
    metadata: dict[str, Any] | None = None


class ScheduleAnswer(Answer):
    """A schedule in its current state."""

    name: str
    cron: str
    tz: str
    queue: str
    kind: str
    payload: Any
    catch_up: CatchUp
    catch_up_most: int
    priority: int
    delay: float
    max_attempts: int
    unique_key: str | None
    unique_while: str | None
    unique_for: float | None
    group_key: str | None
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    paused: bool
    declared: bool
    """True if code declares it; a PUT makes it yours."""
    next_tick: Iso | None
    """None while it is paused."""
    last_tick: Iso | None
    """The newest tick with a job."""
    updated_at: Iso


class ScheduleChanged(ScheduleAnswer):
    """A schedule after a pause or a resume."""

    already: bool
    """True if it was in this state before."""


class ScheduleList(Answer):
    """All schedules, by name."""

    items: list[ScheduleAnswer]
    next: str | None = None


async def put_schedule(asking: RequestContext) -> Reply:
    """Create a schedule, or replace the one of that name."""
    _check_installed()
    name, body = _name(asking), asking.body
    queue = await asking.server.queues.get(asking.tenant, checks.name(body.queue, "queue"))
    is_new = name not in {schedule.name for schedule in await asking.calls.schedules.afind()}
    schedule = await asking.calls.schedules.asave(
        name,
        body.cron,
        kind=body.queue if body.kind is None else body.kind,
        payload=body.payload,
        **_options(asking, body, queue),
    )
    return Reply(201 if is_new else 200, answer_of(schedule))


def _options(asking: RequestContext, body: ScheduleBody, queue: QueueSettings) -> ScheduleOptions:
    most = queue.max_attempts if body.max_attempts is None else body.max_attempts
    return {
        "queue": qualified(asking.tenant, body.queue),
        "tz": body.tz,
        "catch_up": body.catch_up,
        "catch_up_most": body.catch_up_most,
        "priority": body.priority,
        "delay": optional_duration(body.delay, "delay"),
        "max_attempts": most,
        "backoff": queue.backoff,
        "retention": queue.retention,
        "unique_key": body.unique_key,
        "unique_while": body.unique_while,
        "unique_for": optional_duration(body.unique_for, "unique_for"),
        "group_key": body.group_key,
        "tags": body.tags,
        "metadata": body.metadata,
    }


def _check_installed() -> None:
    if find_spec("cronsim") is None:
        raise Refused(
            make(
                NOT_INSTALLED,
                "This server cannot read cron expressions. Whoever runs it needs to install what"
                " does: pip install 'onefold[cron]'. Nothing was stored.",
            )
        )


async def get_schedule(asking: RequestContext) -> Reply:
    """One schedule."""
    return Reply(200, answer_of(await _found(asking)))


async def list_schedules(asking: RequestContext) -> Reply:
    """All schedules of the tenant."""
    found = await asking.calls.schedules.afind()
    return Reply(200, ScheduleList(items=[answer_of(schedule) for schedule in found]))


async def delete_schedule(asking: RequestContext) -> Reply:
    """Remove a schedule; its jobs stay."""
    name = _name(asking)
    if not await asking.calls.schedules.adelete(name):
        raise ScheduleNotFound(name)
    return Reply(204)


async def pause_schedule(asking: RequestContext) -> Reply:
    """Pause a schedule. Safe to repeat."""
    return await _changed(asking, changed=await asking.calls.schedules.apause(_name(asking)))


async def resume_schedule(asking: RequestContext) -> Reply:
    """Resume a schedule from now."""
    return await _changed(asking, changed=await asking.calls.schedules.aresume(_name(asking)))


async def _changed(asking: RequestContext, *, changed: bool) -> Reply:
    told = msgspec.structs.asdict(answer_of(await _found(asking)))
    return Reply(200, ScheduleChanged(**told, already=not changed))


def _name(asking: RequestContext) -> str:
    return checks.name(asking.path["name"], "name")


async def _found(asking: RequestContext) -> Schedule:
    name = _name(asking)
    for schedule in await asking.calls.schedules.afind():
        if schedule.name == name:
            return schedule
    raise ScheduleNotFound(name)


def answer_of(schedule: Schedule) -> ScheduleAnswer:
    """The JSON of a schedule."""
    text = schedule.options_text
    template = Template() if text is None else msgspec.json.decode(text, type=Template)
    options = read_options(template.options)
    has_key = template.unique_key is not None
    return ScheduleAnswer(
        name=schedule.name,
        cron=schedule.cron,
        tz=schedule.tz,
        queue=shown(schedule.tenant, schedule.queue),
        kind=schedule.kind,
        payload=msgspec.Raw(schedule.payload_text.encode()),
        catch_up=schedule.catch_up,
        catch_up_most=schedule.catch_up_most,
        priority=template.priority,
        delay=template.delay / 1_000_000,
        max_attempts=template.max_attempts,
        unique_key=template.unique_key,
        unique_while=_WHILE.get(template.unique_states) if has_key else None,
        unique_for=None if template.unique_for is None else template.unique_for / 1_000_000,
        group_key=template.group_key,
        tags=options.tags,
        metadata=options.metadata or {},
        paused=schedule.paused,
        declared=schedule.declared,
        next_tick=None if schedule.paused else iso(schedule.next_tick),
        last_tick=iso_or_none(schedule.last_tick),
        updated_at=iso(schedule.updated_at),
    )


_PATH: Final = "/v1/schedules/{name}"

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/schedules",
        name="listSchedules",
        summary="All schedules",
        description="By name, with the next tick of each.",
        endpoint=list_schedules,
        scope="work",
        answers={200: ScheduleList},
    ),
    Route(
        method="PUT",
        path=_PATH,
        name="putSchedule",
        summary="Make a schedule, or change it",
        description="The whole schedule: what is left out is the default. The queue must be there."
        " Saying the same again changes nothing; another expression counts from now.",
        endpoint=put_schedule,
        scope="admin",
        body=ScheduleBody,
        answers={200: ScheduleAnswer, 201: ScheduleAnswer},
        problems=(404, 501),
    ),
    Route(
        method="GET",
        path=_PATH,
        name="getSchedule",
        summary="One schedule",
        description="What it says, and when it ticks next.",
        endpoint=get_schedule,
        scope="work",
        answers={200: ScheduleAnswer},
        problems=(404,),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        name="deleteSchedule",
        summary="Remove a schedule; its jobs stay",
        description="No more jobs are made by it.",
        endpoint=delete_schedule,
        scope="admin",
        answers={204: None},
        problems=(404,),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/pause",
        name="pauseSchedule",
        summary="Let a schedule rest",
        description="No jobs are made until it is resumed. Safe to repeat.",
        endpoint=pause_schedule,
        scope="admin",
        answers={200: ScheduleChanged},
        problems=(404,),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/resume",
        name="resumeSchedule",
        summary="Let a schedule go on from now: what it slept through is not made up for",
        description="Safe to repeat. The next tick is counted from now.",
        endpoint=resume_schedule,
        scope="admin",
        answers={200: ScheduleChanged},
        problems=(404,),
    ),
)
