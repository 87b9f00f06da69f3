"""`onefold queues`: list, pause, resume and limit queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from onefold import ConflictingOptions, InvalidInput, Limit, QueueCounts
from onefold.cli.command_context import CliContext, ListsByDefault, with_context
from onefold.cli.completion import queue_names
from onefold.cli.overview import NO_QUEUE, find_queues
from onefold.cli.parsers import examples
from onefold.cli.render import struct_value
from onefold.model.queue import CONFIDENTIAL

if TYPE_CHECKING:
    from onefold import Queue


queues: typer.Typer = typer.Typer(
    cls=ListsByDefault, help="List, pause, resume and limit queues.", rich_markup_mode=None
)

QueueName: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The queue.", autocompletion=queue_names)
]

COLUMNS = ("queue", "ready", "scheduled", "running", "state", "limit", "of each group", "ordered")


@queues.command("list", epilog=examples("onefold queues", "onefold queues --json"))
@with_context
def list_queues(cli: CliContext) -> None:
    """List queues with settings, or with unfinished or dead jobs; `onefold queues` does, too."""
    found = [queue for queue, _ in find_queues(cli.onefold)]
    cli.answer_table(
        [_value(queue) for queue in found],
        COLUMNS,
        [_row(queue) for queue in found],
        none=NO_QUEUE,
    )


@queues.command(epilog=examples("onefold queues pause mail"))
@with_context
def pause(cli: CliContext, name: QueueName) -> None:
    """Pause a queue: no worker takes its jobs. Running jobs continue."""
    cli.onefold.queues.pause(name)
    cli.answer({"queue": name, "paused": True}, f"The queue {name} is paused.")


@queues.command(epilog=examples("onefold queues resume mail"))
@with_context
def resume(cli: CliContext, name: QueueName) -> None:
    """Resume a paused queue."""
    cli.onefold.queues.resume(name)
    cli.answer({"queue": name, "paused": False}, f"The queue {name} is resumed.")


@queues.command(
    epilog=examples(
        "onefold queues limit mail --rate 100/m --group-concurrency 2",
        "onefold queues limit mail --clear",
    )
)
@with_context
def limit(
    cli: CliContext,
    name: QueueName,
    *,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Jobs at once, over all workers.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/UNIT", help="Jobs per time: 100/m, 10/30s.")
    ] = None,
    group_concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Jobs at once of each group.")
    ] = None,
    group_rate: Annotated[
        str | None, typer.Option(metavar="N/UNIT", help="Jobs of each group per time.")
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Run the jobs of each group one at a time, in order.")
    ] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove these limits; those of the code apply again.")
    ] = False,
) -> None:
    """Set the limits of a queue. They override those in the code."""
    whole, group = _limit(concurrency, rate), _limit(group_concurrency, group_rate)
    limited = bool(whole or group or ordered)
    if clear and limited:
        raise ConflictingOptions("clear", "removes all limits: use it without other options")
    if clear:
        cli.onefold.queues.clear_limits(name)
        return cli.answer({"queue": name, "cleared": True}, f"The limits of {name} are removed.")
    if not limited:
        raise InvalidInput(
            "limit",
            "needs --concurrency, --rate, --group-concurrency, --group-rate, --ordered or --clear",
        )
    cli.onefold.queues.set_limits(name, limit=whole, group_limit=group, ordered=ordered)
    (now,) = (queue for queue in cli.onefold.queues.find() if queue.full_name == name)
    return cli.answer(_value(now), f"The queue {name} is limited: {_limits(now)}.")


def _limit(concurrency: int | None, rate: str | None) -> Limit | None:
    nothing = concurrency is None and rate is None
    return None if nothing else Limit(concurrency=concurrency, rate=rate)


def _value(queue: Queue) -> dict[str, Any]:
    members = struct_value(queue)
    return {name: member for name, member in members.items() if name not in CONFIDENTIAL}


def _row(queue: Queue) -> tuple[object, ...]:
    counts = queue.counts or QueueCounts()
    return (
        queue.full_name,
        counts.ready,
        counts.scheduled,
        counts.running,
        "paused" if queue.paused else "open",
        _short(queue.limit),
        _short(queue.group_limit),
        "yes" if queue.ordered else None,
    )


def _short(limit: Limit | None) -> str | None:
    if limit is None:
        return None
    at_once = None if limit.concurrency is None else f"{limit.concurrency} at once"
    rate = None if limit.rate is None else str(limit.rate)
    return ", ".join(part for part in (at_once, rate) if part)


def _limits(queue: Queue) -> str:
    group = _short(queue.group_limit)
    parts = (
        _short(queue.limit),
        None if group is None else f"{group} of each group",
        "groups in order" if queue.ordered else None,
    )
    return "; ".join(part for part in parts if part)
