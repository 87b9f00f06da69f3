"""`onefold enqueue`: store a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from onefold.cli import parsers
from onefold.cli.command_context import CliContext, with_context
from onefold.cli.completion import kinds, queue_names

if TYPE_CHECKING:
    from onefold.jobs.enqueue_options import EnqueueOptions

FROM_INPUT = "-"


@with_context
def enqueue(
    cli: CliContext,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="The kind of the job.", autocompletion=kinds)
    ],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON; - reads it from standard input.")
    ] = "{}",
    *,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The queue.  [default]", autocompletion=queue_names),
    ] = None,
    unique_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="At most one job of the kind has this key.")
    ] = None,
    unique_while: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE",
            help="How long the job holds its unique key: queued, active or exists.  [active]",
        ),
    ] = None,
    unique_for: Annotated[
        str | None, typer.Option(metavar="TIME", help="Hold the unique key for this time.")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Repeats of this command with this key count once."),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Run it after this time: 30s, 2h.")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Run it at this time: 2026-03-29T12:00.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(metavar="N", help="A lower number runs first.  [0]")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(metavar="N", help="Attempts before it is dead.  [8]")
    ] = None,
    group_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The group, for limits of each group.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A tag; can be repeated.")
    ] = None,
) -> None:
    """Store a job, or find the job that an equal request has stored before.

    With --idempotency-key or --unique-key it is safe to repeat: a repeat prints the same id, and
    says that it is a duplicate. With --app, a declared job has its declared options, and its
    payload is checked.
    """
    given: dict[str, Any] = {
        "queue": queue,
        "unique_key": unique_key,
        "unique_while": unique_while,
        "unique_for": None if unique_for is None else parsers.duration(unique_for, "unique_for"),
        "idempotency_key": idempotency_key,
        "delay": None if delay is None else parsers.duration(delay, "delay"),
        "run_at": None if run_at is None else parsers.day_or_time(run_at, "run_at"),
        "priority": priority,
        "max_attempts": max_attempts,
        "group_key": group_key,
        "tags": tag or None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    text = sys.stdin.buffer.read() if payload == FROM_INPUT else payload
    value = parsers.json_value(text, "payload")
    if (job := cli.onefold.jobs.get(kind)) is not None:
        job.declaration.arguments.from_payload(value, run=None)  # raises if it does not fit
        options = job.declaration.options(value, cast("EnqueueOptions", options))
    answer = cli.calls.enqueue(kind, value, **cast("EnqueueOptions", options))
    state = answer.state or "its record is deleted"
    cli.answer(
        {"id": answer.id, "duplicate": answer.duplicate, "state": answer.state},
        f"Not enqueued: the job {answer.id} already exists ({state})."
        if answer.duplicate
        else f"Enqueued {answer.id} ({state}).",
    )
