"""`onefold dead`: dead letters, one by its id or many by filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from onefold import ConflictingOptions, UsageError, WrongState
from onefold.app.dead import BATCH
from onefold.app.jobs import FindOptions  # noqa: TC001 - read by typer
from onefold.cli.command_context import CliContext, ListsByDefault, with_context
from onefold.cli.jobs import (
    AfterOption,
    JobId,
    PageOption,
    filtered,
    found_job,
    replay_job,
    show_job,
    show_page,
)
from onefold.cli.parsers import examples
from onefold.cli.progress import shown_progress
from onefold.cli.render import SHORT, problem, when

if TYPE_CHECKING:
    from onefold import Job

dead: typer.Typer = typer.Typer(
    cls=ListsByDefault,
    help="Dead letters: list, show, replay and drop them.",
    rich_markup_mode=None,
)

MaybeJobId: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="ID", help="The id of one job, instead of a filter.")
]
LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="At most this number.  [all]")
]
AllOption: TypeAlias = Annotated[
    bool, typer.Option("--all", help="All dead letters, without a filter.")
]
YesOption: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="Confirm. Without it, only the number is printed.")
]

COLUMNS = ("id", "kind", "queue", "attempts", "ended", "reason", "error")
COUNTED = 1000
"""The highest number of dead letters that is counted without --yes."""


@dead.command(
    "list",
    epilog=examples(
        "onefold dead --kind email --ended-from 1d",
        "onefold dead --error-type TimeoutError --json",
    ),
)
@with_context
@filtered
def list_dead(
    cli: CliContext,
    filters: FindOptions,
    *,
    limit: PageOption = 50,
    after: AfterOption = None,
) -> None:
    """List dead letters, newest first. `onefold dead` does the same."""
    page = cli.calls.find(limit=limit, after=after, newest_first=True, **_dead(filters))
    show_page(cli, page, COLUMNS, _row, noun="dead letters")


@dead.command(epilog=examples("onefold dead show 01980000-0000-7000-8000-000000000000"))
@with_context
def show(cli: CliContext, job_id: JobId) -> None:
    """Show a dead letter with its attempts and steps."""
    show_job(cli, _found(cli, job_id))


@dead.command(
    epilog=examples(
        "onefold dead replay 01980000-0000-7000-8000-000000000000",
        "onefold dead replay --kind email --ended-from 2h --yes",
    )
)
@with_context
@filtered
def replay(
    cli: CliContext,
    filters: FindOptions,
    job_id: MaybeJobId = None,
    *,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Delete the results of finished steps, so that all steps run again."
        ),
    ] = False,
    limit: LimitOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
) -> None:
    """Run dead letters again: one by its id, or many by filter. Safe to repeat."""
    if job_id is not None:
        _refuse_filters(filters, everything=everything)
        return replay_job(cli, job_id, fresh=fresh)
    _check_many(cli, filters, "replay", everything=everything, yes=yes)
    replayed = skipped = 0
    after: str | None = None
    with shown_progress("Replayed") as progress:
        while True:
            size = BATCH if limit is None else min(BATCH, limit - replayed - skipped)
            answers = cli.calls.dead.replay(fresh=fresh, limit=size, after=after, **_dead(filters))
            replayed, skipped = replayed + answers.inserted, skipped + answers.skipped
            progress(replayed + skipped, limit)
            after = answers.next
            if after is None or replayed + skipped == limit:
                break
    why = f"; skipped {skipped} because a newer job holds the key" if skipped else ""
    return cli.answer({"replayed": replayed, "skipped": skipped}, f"Replayed {replayed}{why}.")


@dead.command(
    epilog=examples(
        "onefold dead drop 01980000-0000-7000-8000-000000000000",
        "onefold dead drop --all --ended-before 30d --yes",
    )
)
@with_context
@filtered
def drop(
    cli: CliContext,
    filters: FindOptions,
    job_id: MaybeJobId = None,
    *,
    limit: LimitOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
) -> None:
    """Delete dead letters and free their keys: one by its id, or many by filter."""
    if job_id is not None:
        _refuse_filters(filters, everything=everything)
        dropped = int(cli.calls.delete(_found(cli, job_id).id))
    else:
        _check_many(cli, filters, "drop", everything=everything, yes=yes)
        dropped = _drop_many(cli, filters, limit)
    cli.answer({"dropped": dropped}, f"Dropped {dropped}.")


def _drop_many(cli: CliContext, filters: FindOptions, limit: int | None) -> int:
    dropped = 0
    with shown_progress("Dropped") as progress:
        while True:
            size = BATCH if limit is None else min(BATCH, limit - dropped)
            count = cli.calls.dead.delete(limit=size, **_dead(filters))
            dropped += count
            progress(dropped, limit)
            if count < size or dropped == limit:
                return dropped


def _dead(filters: FindOptions) -> FindOptions:
    return {**filters, "state": "dead"}


def _found(cli: CliContext, job_id: str) -> Job:
    job = found_job(cli, job_id)
    if job.state != "dead":
        raise WrongState(job.id, state=job.state, wanted="a dead letter")
    return job


def _refuse_filters(filters: FindOptions, *, everything: bool) -> None:
    if filters or everything:
        raise ConflictingOptions("ID", "selects one job: remove the filters and --all")


def _check_many(
    cli: CliContext, filters: FindOptions, verb: str, *, everything: bool, yes: bool
) -> None:
    """An empty shell variable must not select all dead letters."""
    if not filters and not everything:
        raise UsageError(f"Give the ID of one job, a filter, or --all to {verb} all dead letters.")
    if yes:
        return
    count, after = 0, None
    while count < COUNTED:
        page = cli.calls.find(limit=COUNTED - count, after=after, **_dead(filters))
        count, after = count + len(page), page.next
        if after is None:
            break
    more = " or more" if after is not None else ""
    raise UsageError(f"This would {verb} {count}{more} dead letters. Add --yes to do it.")


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
