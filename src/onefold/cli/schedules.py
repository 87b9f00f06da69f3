"""`onefold schedules`: list, pause, resume and run schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from onefold.cli.command_context import CliContext, ListsByDefault, with_context
from onefold.cli.completion import schedule_names
from onefold.cli.parsers import examples
from onefold.cli.render import struct_value

if TYPE_CHECKING:
    from datetime import datetime

    from onefold.model.schedule import Schedule

schedules: typer.Typer = typer.Typer(
    cls=ListsByDefault, help="List, pause, resume and run schedules.", rich_markup_mode=None
)

ScheduleName: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The schedule.", autocompletion=schedule_names)
]

COLUMNS = ("schedule", "cron", "zone", "kind", "queue", "state", "next tick", "last tick")


@schedules.command("list", epilog=examples("onefold schedules"))
@with_context
def list_schedules(cli: CliContext) -> None:
    """List schedules with their last and next tick. `onefold schedules` does the same."""
    found = cli.calls.schedules.find()
    cli.answer_table(
        [struct_value(schedule) for schedule in found],
        COLUMNS,
        [_row(schedule) for schedule in found],
        none='There are no schedules. Declare one in your code: @onefold.cron("0 3 * * *")',
    )


@schedules.command(epilog=examples("onefold schedules pause nightly"))
@with_context
def pause(cli: CliContext, name: ScheduleName) -> None:
    """Pause a schedule. Safe to repeat."""
    changed = cli.calls.schedules.pause(name)
    sentence = f"The schedule {name} {'is' if changed else 'was already'} paused."
    cli.answer({"schedule": name, "paused": True, "changed": changed}, sentence)


@schedules.command(epilog=examples("onefold schedules resume nightly"))
@with_context
def resume(cli: CliContext, name: ScheduleName) -> None:
    """Resume a paused schedule. Ticks missed during the pause are not enqueued."""
    changed = cli.calls.schedules.resume(name)
    sentence = f"The schedule {name} {'is resumed' if changed else 'was not paused'}."
    cli.answer({"schedule": name, "paused": False, "changed": changed}, sentence)


@schedules.command(epilog=examples("onefold schedules run nightly"))
@with_context
def run(cli: CliContext, name: ScheduleName) -> None:
    """Enqueue a job of a schedule now, even if it is paused. Its ticks do not change."""
    enqueued = cli.calls.schedules.run_now(name)
    outcome = "already exists" if enqueued.duplicate else "is enqueued"
    cli.answer(
        {"schedule": name, "id": enqueued.id, "duplicate": enqueued.duplicate},
        f"The job {enqueued.id} {outcome}.",
    )


def _row(schedule: Schedule) -> tuple[object, ...]:
    return (
        schedule.name,
        schedule.cron,
        schedule.tz,
        schedule.kind,
        schedule.queue,
        "paused" if schedule.paused else "open",
        _local(schedule, schedule.next_tick),
        _local(schedule, schedule.last_tick),
    )


def _local(schedule: Schedule, tick: datetime | None) -> str | None:
    """A tick as text, in the zone of the schedule."""
    local = schedule.local(tick)
    return None if local is None else f"{local:%Y-%m-%d %H:%M:%S %Z}"
