"""`onefold jobs`: list, show, cancel and retry jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from onefold import JobNotFound
from onefold.app.jobs import FindOptions  # noqa: TC001 - read by typer
from onefold.cli import parsers
from onefold.cli.command_context import CliContext, ListsByDefault, print_table, with_context
from onefold.cli.completion import kinds, queue_names
from onefold.cli.parsers import Expand, examples, expanded
from onefold.cli.render import (
    SHORT,
    attempt_rows,
    attempt_value,
    job_lines,
    problem,
    step_rows,
    step_value,
    struct_value,
    when,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onefold import Job, JobPage

jobs: typer.Typer = typer.Typer(
    cls=ListsByDefault, help="List, show, cancel and retry jobs.", rich_markup_mode=None
)

JobId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The id of the job.")]
PageOption: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1, max=1000, help="At most this number.")
]
AfterOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="CURSOR", help="Continue after an earlier list.")
]
ReasonOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The reason; stored with the job.")
]

COLUMNS = ("id", "kind", "queue", "state", "attempts", "created", "due", "ended", "error")
ATTEMPTS = ("attempt", "fence", "started", "took", "worker", "outcome", "reason", "error")
STEPS = ("step", "state", "attempts", "started", "took", "error")


def read_filters(
    *,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="With this id, or its first digits.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this kind.", autocompletion=kinds)
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this queue.", autocompletion=queue_names)
    ] = None,
    error_type: Annotated[
        str | None, typer.Option(metavar="NAME", help="With a last error of this type.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="With this reason.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TEXT", help="With this tag.")] = None,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With this text in the payload.")
    ] = None,
    created_from: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Enqueued at or after: 2026-03-29, or 2h for 2 hours ago."
        ),
    ] = None,
    created_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Enqueued before.")
    ] = None,
    ended_from: Annotated[
        str | None, typer.Option(metavar="TIME", help="Ended at or after.")
    ] = None,
    ended_before: Annotated[str | None, typer.Option(metavar="TIME", help="Ended before.")] = None,
) -> FindOptions:
    """The filters that the options describe."""
    texts = {
        "id": id_, "kind": kind, "queue": queue, "error_type": error_type, "reason": reason,
        "tag": tag, "text": text,
    }  # fmt: skip
    moments = {
        "created_from": created_from,
        "created_before": created_before,
        "ended_from": ended_from,
        "ended_before": ended_before,
    }
    filters: dict[str, Any] = {
        name: parsers.moment(text, name) for name, text in moments.items() if text is not None
    }
    filters |= {name: text for name, text in texts.items() if text is not None}
    return cast("FindOptions", filters)


filtered: Expand = expanded("filters", read_filters)
"""Adds the options that filter jobs."""


@jobs.command(
    "list",
    epilog=examples(
        "onefold jobs --state retrying --queue mail",
        "onefold jobs --kind email --created-from 2h --json",
    ),
)
@with_context
@filtered
def list_jobs(
    cli: CliContext,
    filters: FindOptions,
    *,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="In this state: scheduled, ready, retrying, running, awaiting, completed, dead,"
            " cancelled.",
        ),
    ] = None,
    unique_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="With this unique key.")
    ] = None,
    limit: PageOption = 50,
    after: AfterOption = None,
) -> None:
    """List jobs, newest first. `onefold jobs` does the same."""
    wanted: FindOptions = {**filters, "state": state, "unique_key": unique_key}
    page = cli.calls.find(limit=limit, after=after, newest_first=True, **wanted)
    show_page(cli, page, COLUMNS, _row, noun="jobs")


@jobs.command(epilog=examples("onefold jobs show 01980000-0000-7000-8000-000000000000"))
@with_context
def show(cli: CliContext, job_id: JobId) -> None:
    """Show a job with its attempts and steps."""
    show_job(cli, found_job(cli, job_id))


@jobs.command(
    epilog=examples(
        'onefold jobs cancel 01980000-0000-7000-8000-000000000000 --reason "not wanted"'
    )
)
@with_context
def cancel(cli: CliContext, job_id: JobId, *, reason: ReasonOption = None) -> None:
    """Cancel a queued or running job. Safe to repeat."""
    cancelled = cli.calls.cancel(job_id, reason=reason)
    sentence = f"Cancelled {job_id}." if cancelled else f"{job_id} is already cancelled."
    cli.answer({"id": job_id, "cancelled": cancelled}, sentence)


@jobs.command(epilog=examples("onefold jobs retry 01980000-0000-7000-8000-000000000000"))
@with_context
def retry(cli: CliContext, job_id: JobId) -> None:
    """Run a job now: one that waits for its time or its retry, or a dead or cancelled one.

    A dead or cancelled job starts with all its attempts; its finished steps are not run again.
    """
    job = found_job(cli, job_id)
    if job.state in {"dead", "cancelled"}:
        return replay_job(cli, job_id)
    changed = cli.calls.run_now(job_id)
    now = found_job(cli, job_id).state
    return cli.answer(
        {"id": job_id, "changed": changed, "state": now},
        f"{job_id} is due now." if changed else f"{job_id} is due or running already ({now}).",
    )


def replay_job(cli: CliContext, job_id: str, *, fresh: bool = False) -> None:
    """Run an ended job again, and print what happened."""
    answer = cli.calls.replay(job_id, fresh=fresh)
    job = cli.calls.get(answer.id)
    state = None if job is None else job.state
    cli.answer(
        {"id": answer.id, "duplicate": answer.duplicate, "state": state},
        f"Not replayed: the job {answer.id} already exists ({state})."
        if answer.duplicate
        else f"Replayed {answer.id}.",
    )


def show_page(
    cli: CliContext,
    page: JobPage,
    columns: Sequence[str],
    row: Callable[[Job], Sequence[object]],
    *,
    noun: str,
) -> None:
    """Print a page of jobs, the newest first, and the cursor of the next page."""
    jobs = [struct_value(job) for job in page]
    value = {"jobs": jobs, "next": page.next, "looked_to": page.looked_to}
    cli.answer_table(value, columns, [row(job) for job in page], none=f"No {noun} found.")
    if page.next is not None and not cli.as_json:
        back = (
            f"Looked back to {when(page.looked_to)}. There may be"
            if page.looked_to
            else "There are"
        )
        typer.echo(f"{back} more: --after {page.next}")


def _row(job: Job) -> tuple[object, ...]:
    return (
        job.id,
        job.kind,
        job.queue,
        job.state,
        job.attempt,
        when(job.created_at),
        when(job.run_at),
        when(job.ended_at),
        problem(job.error, length=SHORT),
    )


def found_job(cli: CliContext, job_id: str) -> Job:
    """The job, or `JobNotFound`."""
    job = cli.calls.get(job_id)
    if job is None:
        raise JobNotFound(job_id)
    return job


def show_job(cli: CliContext, job: Job) -> None:
    """Print a job, its attempts and its steps."""
    attempts, steps = cli.calls.deliveries.attempts(job.id), cli.calls.deliveries.steps(job.id)
    waiting = cli.calls.deliveries.why(job.id)
    value = {
        **struct_value(job),
        "waiting": waiting,
        "attempts": [attempt_value(attempt) for attempt in attempts],
        "steps": [step_value(step) for step in steps],
    }
    cli.answer(value, "\n".join(job_lines(job, waiting)))
    for columns, rows in ((ATTEMPTS, attempt_rows(attempts)), (STEPS, step_rows(steps))):
        if rows and not cli.as_json:
            typer.echo()
            print_table(columns, rows)
