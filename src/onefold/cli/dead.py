"""`onefold dead`: dead letters, one by its id or many by filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from onefold import ConflictingOptions, UsageError, WrongState
from onefold.calls.jobs import FindOptions  # noqa: TC001 - read by typer
from onefold.cli import written
from onefold.cli.describing import SHORT, job_value, problem, when
from onefold.cli.desk import Desk, at_desk
from onefold.cli.expanding import Expand, expanded
from onefold.cli.jobs import found_job, show_job

if TYPE_CHECKING:
    from onefold import Job

dead: typer.Typer = typer.Typer(
    help="Dead letters: list, show, replay and drop them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JobId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The id of the job.")]
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
ALL: FindOptions = {"status": "dead"}
COUNTED = 1000
"""Dead letters that are counted for somebody who has not said --yes yet."""


def read_filters(
    *,
    kind: Annotated[str | None, typer.Option(metavar="NAME", help="Of this kind.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Of this queue.")] = None,
    error_type: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose last error is of this type.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Buried for this reason.")
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="TEXT", help="With this tag.")] = None,
    created_from: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Enqueued then or later: 2026-03-29, or 2h for ago."),
    ] = None,
    created_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Enqueued before then.")
    ] = None,
    ended_from: Annotated[
        str | None, typer.Option(metavar="TIME", help="Buried then or later.")
    ] = None,
    ended_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Buried before then.")
    ] = None,
) -> FindOptions:
    """What was said of the dead letters that are meant."""
    texts = {
        "kind": kind, "queue": queue, "error_type": error_type, "reason": reason, "tag": tag,
    }  # fmt: skip
    moments = {
        "created_from": created_from,
        "created_before": created_before,
        "ended_from": ended_from,
        "ended_before": ended_before,
    }
    filters: dict[str, Any] = {
        name: written.moment(text, name) for name, text in moments.items() if text is not None
    }
    filters |= {name: text for name, text in texts.items() if text is not None}
    return cast("FindOptions", {**ALL, **filters})


filtered: Expand = expanded("filters", read_filters)
"""Gives a command the options that say which dead letters are meant."""


@dead.command("list")
@at_desk
@filtered
def list_dead(
    desk: Desk,
    filters: FindOptions,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="At most so many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on behind an earlier list.")
    ] = None,
) -> None:
    """List dead letters, the newest first."""
    page = desk.calls.find(limit=limit, after=after, newest_first=True, **filters)
    desk.answer_table(
        {"jobs": [job_value(job) for job in page], "next": page.next},
        COLUMNS,
        [_row(job) for job in page],
        none="There are no such dead letters.",
    )
    if page.next is not None and not desk.as_json:
        typer.echo(f"There are more: --after {page.next}")


@dead.command()
@at_desk
def show(desk: Desk, job_id: JobId) -> None:
    """Show a dead letter: what it is, its attempts and its steps."""
    show_job(desk, _found(desk, job_id))


@dead.command()
@at_desk
@filtered
def replay(
    desk: Desk,
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
        return desk.answer(
            {"id": answer.id, "duplicate": answer.duplicate, "state": answer.state},
            f"The job {answer.id} stands for it already ({answer.state})."
            if answer.duplicate
            else f"Replayed {answer.id}.",
        )
    _check_many(desk, filters, "replay", everything=everything, yes=yes)
    answers = desk.calls.replay_many(fresh=fresh, limit=limit, **filters)
    skipped = f"; {answers.skipped} whose key a newer job has were left" if answers.skipped else ""
    return desk.answer(
        {"replayed": answers.inserted, "skipped": answers.skipped},
        f"Replayed {answers.inserted}{skipped}.",
    )


@dead.command()
@at_desk
@filtered
def drop(
    desk: Desk,
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
        dropped = desk.calls.delete_many(limit=limit, **filters)
    desk.answer({"dropped": dropped}, f"Dropped {dropped}.")


def _found(desk: Desk, job_id: str) -> Job:
    job = found_job(desk, job_id)
    if job.state != "dead":
        raise WrongState(job.id, state=job.state, wanted="a dead letter")
    return job


def _refuse_filters(filters: FindOptions, *, everything: bool) -> None:
    if filters != ALL or everything:
        raise ConflictingOptions("ID", "means one job: leave filters and --all out")


def _check_many(
    desk: Desk, filters: FindOptions, verb: str, *, everything: bool, yes: bool
) -> None:
    """A slip, such as a variable that is empty, must not reach all dead letters at once."""
    if filters == ALL and not everything:
        raise UsageError(f"Say which: the ID of one job, a filter, or --all to {verb} all of them.")
    if yes:
        return
    page = desk.calls.find(limit=COUNTED, **filters)
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
