"""`onefold jobs`: look at one job, or stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from onefold import JobNotFound
from onefold.cli.describing import (
    attempt_rows,
    attempt_value,
    job_lines,
    job_value,
    step_rows,
    step_value,
)
from onefold.cli.desk import Desk, at_desk, print_table

if TYPE_CHECKING:
    from onefold import Job

jobs: typer.Typer = typer.Typer(
    help="Look at one job, or stop it.", no_args_is_help=True, rich_markup_mode=None
)

JobId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The id of the job.")]
ReasonOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why; kept with the job.")
]

ATTEMPTS = ("attempt", "fence", "started", "took", "worker", "outcome", "reason", "error")
STEPS = ("step", "state", "attempts", "started", "took", "error")


@jobs.command()
@at_desk
def show(desk: Desk, job_id: JobId) -> None:
    """Show a job: what it is, its attempts and its steps."""
    show_job(desk, found_job(desk, job_id))


@jobs.command()
@at_desk
def cancel(desk: Desk, job_id: JobId, *, reason: ReasonOption = None) -> None:
    """Stop a queued or running job. Safe to repeat."""
    cancelled = desk.calls.cancel(job_id, reason=reason)
    sentence = f"Cancelled {job_id}." if cancelled else f"{job_id} had been cancelled before."
    desk.answer({"id": job_id, "cancelled": cancelled}, sentence)


def found_job(desk: Desk, job_id: str) -> Job:
    """The job, or `JobNotFound`."""
    job = desk.calls.get(job_id)
    if job is None:
        raise JobNotFound(job_id)
    return job


def show_job(desk: Desk, job: Job) -> None:
    """All that is known of it."""
    attempts, steps = desk.calls.attempts(job.id), desk.calls.steps(job.id)
    value = {
        **job_value(job),
        "attempts": [attempt_value(attempt) for attempt in attempts],
        "steps": [step_value(step) for step in steps],
    }
    desk.answer(value, "\n".join(job_lines(job)))
    for columns, rows in ((ATTEMPTS, attempt_rows(attempts)), (STEPS, step_rows(steps))):
        if rows and not desk.as_json:
            typer.echo()
            print_table(columns, rows)
