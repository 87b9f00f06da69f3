"""`onefold dead`: dead letters, one by its id or many by filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from onefold import ConflictingOptions, UsageError, WrongState
from onefold.app.jobs import FindOptions  # noqa: TC001 - read by typer
from onefold.cli.command_context import CliContext, ListsByDefault, at_desk
from onefold.cli.jobs import (
    AfterOption,
    JobId,
    PageOption,
    filtered,
    found_job,
    show_job,
    show_page,
)
from onefold.cli.render import SHORT, problem, when

if TYPE_CHECKING:
    from onefold import Job

dead: typer.Typer = typer.Typer(
    cls=ListsByDefault,
    help="Dead letters: list, show, replay and drop them.",
    rich_markup_mode=None,
)

MaybeJobId: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="ID", help="The id of one job; or say a filter.")
]
LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="At most so many.  [all]")
]
AllOption: TypeAlias = Annotated[
    bool, typer.Option("--all", help="All dead letters, without a filter.")
]
YesOption: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="Do it; without, it is only said how many it would be.")
]

COLUMNS = ("id", "kind", "queue", "attempts", "ended", "reason", "error")
COUNTED = 1000
"""Dead letters that are counted for somebody who has not said --yes yet."""


@dead.command("list")
@at_desk
@filtered
def list_dead(
    desk: CliContext,
    filters: FindOptions,
    *,
    limit: PageOption = 50,
    after: AfterOption = None,
) -> None:
    """List dead letters, the newest first. The same as `onefold dead`."""
    page = desk.calls.find(limit=limit, after=after, newest_first=True, **_dead(filters))
    show_page(desk, page, COLUMNS, _row, none="There are no such dead letters.")


@dead.command()
@at_desk
def show(desk: CliContext, job_id: JobId) -> None:
    """Show a dead letter: what it is, its attempts and its steps."""
    show_job(desk, _found(desk, job_id))


@dead.command()
@at_desk
@filtered
def replay(
    desk: CliContext,
    filters: FindOptions,
    job_id: MaybeJobId = None,
    *,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget finished steps: everything is done anew.")
    ] = False,
    limit: LimitOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
) -> None:
    """Send dead letters round again: one by its id, or many by filter. Safe to repeat."""
    if job_id is not None:
        _refuse_filters(filters, everything=everything)
        answer = desk.calls.replay(job_id, fresh=fresh)
        job = desk.calls.get(answer.id)
        state = None if job is None else job.status
        return desk.answer(
            {"id": answer.id, "duplicate": answer.duplicate, "state": state},
            f"The job {answer.id} stands for it already ({state})."
            if answer.duplicate
            else f"Replayed {answer.id}.",
        )
    _check_many(desk, filters, "replay", everything=everything, yes=yes)
    answers = desk.calls.dead.replay(fresh=fresh, limit=limit, **_dead(filters))
    skipped = f"; {answers.skipped} whose key a newer job has were left" if answers.skipped else ""
    return desk.answer(
        {"replayed": answers.inserted, "skipped": answers.skipped},
        f"Replayed {answers.inserted}{skipped}.",
    )


@dead.command()
@at_desk
@filtered
def drop(
    desk: CliContext,
    filters: FindOptions,
    job_id: MaybeJobId = None,
    *,
    limit: LimitOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
) -> None:
    """Remove dead letters for good: one by its id, or many by filter. Their keys are free then."""
    if job_id is not None:
        _refuse_filters(filters, everything=everything)
        dropped = int(desk.calls.delete(_found(desk, job_id).id))
    else:
        _check_many(desk, filters, "drop", everything=everything, yes=yes)
        dropped = desk.calls.dead.delete(limit=limit, **_dead(filters))
    desk.answer({"dropped": dropped}, f"Dropped {dropped}.")


def _dead(filters: FindOptions) -> FindOptions:
    return {**filters, "status": "dead"}


def _found(desk: CliContext, job_id: str) -> Job:
    job = found_job(desk, job_id)
    if job.state != "dead":
        raise WrongState(job.id, state=job.state, wanted="a dead letter")
    return job


def _refuse_filters(filters: FindOptions, *, everything: bool) -> None:
    if filters or everything:
        raise ConflictingOptions("ID", "means one job: leave filters and --all out")


def _check_many(
    desk: CliContext, filters: FindOptions, verb: str, *, everything: bool, yes: bool
) -> None:
    """A slip, such as a variable that is empty, must not reach all dead letters at once."""
    if not filters and not everything:
        raise UsageError(f"Say which: the ID of one job, a filter, or --all to {verb} all of them.")
    if yes:
        return
    page = desk.calls.find(limit=COUNTED, **_dead(filters))
    count = f"{len(page)} or more" if page.next is not None else str(len(page))
    raise UsageError(f"This would {verb} {count} of the dead letters. Say --yes to do it.")


def _row(job: Job) -> tuple[object, ...]:
    return (
        job.id,
        job.kind,
        job.queue,
        job.attempt,
        when(job.ended_at),
        job.reason,
        problem(job.error, length=SHORT),
    )
