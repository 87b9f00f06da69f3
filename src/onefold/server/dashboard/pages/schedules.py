"""Schedules: cron in words, the next ticks, and run now, pause, resume."""

from __future__ import annotations

import calendar
import re
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from onefold.errors import InvalidInput
from onefold.model.checks import shown
from onefold.model.schedule import Schedule, load
from onefold.operations import schedules
from onefold.server.dashboard.page import Page, PageRequest, PageTable, Redirect

PAGES: Final = PageTable()

TICKS: Final = 5
WORDS: Final = {
    "@hourly": "every hour",
    "@daily": "every day at 00:00",
    "@midnight": "every day at 00:00",
    "@weekly": "every Sunday at 00:00",
    "@monthly": "on day 1 of each month at 00:00",
    "@yearly": "on January 1 at 00:00",
    "@annually": "on January 1 at 00:00",
    "* * * * *": "every minute",
    "0 * * * *": "every hour",
}
EVEN_STEPS: Final = frozenset({2, 3, 4, 5, 6, 10, 12, 15, 20, 30})
DAYS: Final = {
    "*": "every day",
    "1-5": "Monday to Friday",
    "0": "every Sunday",
    **{str(number): f"every {day}" for number, day in enumerate(calendar.day_name, 1)},
    **{day[:3].upper(): f"every {day}" for day in calendar.day_name},
    "MON-FRI": "Monday to Friday",
}


class ShownSchedule(msgspec.Struct, frozen=True):
    """A schedule, and what a visitor wants to know about it."""

    schedule: Schedule
    words: str | None
    ticks: tuple[datetime | None, ...]


@PAGES.get("/schedules")
def list_schedules(request: PageRequest) -> Page:
    """A page of schedules by name, with their next ticks."""
    calls, after = request.calls, request.query.get("after")
    page = calls.context.store.transact(
        partial(schedules.find, tenant=request.session.tenant, after=after), write=False
    )
    found = [
        ShownSchedule(
            msgspec.structs.replace(
                one, queue=shown(one.tenant, one.queue), last_tick=one.local(one.last_tick)
            ),
            in_words(one.cron),
            tuple(map(one.local, _ticks(one))),
        )
        for one in page.schedules
    ]
    values = {
        "schedules": found,
        "next": page.next and request.url("/schedules", after=page.next),
        "first": request.url("/schedules") if after else None,
    }
    return Page("schedules.html", values)


def _ticks(schedule: Schedule) -> tuple[datetime, ...]:
    """The next ticks; one only if this process cannot read the expression."""
    tick = schedule.next_tick
    if tick is None:
        return ()
    ticks = [tick]
    try:
        cron = load(schedule.cron, schedule.tz)
    except InvalidInput:
        return (tick,)
    while len(ticks) < TICKS and (tick := cron.after(ticks[-1])) is not None:
        ticks.append(tick)
    return tuple(ticks)


def in_words(cron: str) -> str | None:
    """A simple expression in words; None for others."""
    fields = cron.split()
    if known := WORDS.get(" ".join(fields).lower()):
        return known
    match fields:
        case [minute, "*", "*", "*", "*"] if step := re.fullmatch(r"\*/(\d+)", minute):
            # Other steps are shorter at the full hour.
            return f"every {step[1]} minutes" if int(step[1]) in EVEN_STEPS else None
        case [minute, "*", "*", "*", "*"] if minute.isdecimal():
            return f"every hour at minute {int(minute)}"
        case [minute, hour, day, "*", weekday] if minute.isdecimal() and hour.isdecimal():
            on = _days(day, weekday.upper())
            return on and f"{on} at {int(hour):02}:{int(minute):02}"
        case _:
            return None


def _days(day: str, weekday: str) -> str | None:
    if day == "*":
        return DAYS.get(weekday)
    return f"on day {int(day)} of each month" if weekday == "*" and day.isdecimal() else None


@PAGES.action("/schedules/run-now")
def run_schedule_now(request: PageRequest) -> Redirect:
    """Enqueue a job of a schedule beside its ticks."""
    name = request.form.get("name", "")
    job = request.calls.schedules.run_now(name)
    if job.duplicate:
        notice = "Nothing was enqueued: the job shown here holds the key."
        return Redirect(f"/jobs/{job.id}", notice, failed=True)
    return Redirect(f"/jobs/{job.id}", f"The schedule {name} has enqueued this job.")


@PAGES.action("/schedules/pause")
def pause_schedule(request: PageRequest) -> Redirect:
    """Stop the ticks of a schedule."""
    name = request.form.get("name", "")
    changed = request.calls.schedules.pause(name)
    notice = f"{name} is paused." if changed else f"{name} was paused before."
    return Redirect("/schedules", notice)


@PAGES.action("/schedules/resume")
def resume_schedule(request: PageRequest) -> Redirect:
    """Continue the ticks of a schedule from now."""
    name = request.form.get("name", "")
    changed = request.calls.schedules.resume(name)
    notice = f"{name} continues from now." if changed else f"{name} was not paused."
    return Redirect("/schedules", notice)
