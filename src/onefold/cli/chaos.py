"""`onefold chaos`: kill, freeze and cut off the workers of an application, then check it."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from onefold import ConflictingOptions, InvalidInput, Onefold, UsageError
from onefold.cli import parsers
from onefold.cli.app_loader import load_app
from onefold.cli.command_context import CliContext, JsonOption, TenantOption
from onefold.cli.config import configured
from onefold.cli.render import field_lines
from onefold.cli.worker import Target  # noqa: TC001 - read by typer

if TYPE_CHECKING:
    from onefold.testing.chaos import Chaos, Load, Report

SEEDS = 2**32
HOLDS = "The check holds, and no job is left."
NOT_CHECKED = "No job is left. Add --check SQL to check their effects."
NOT_CUT = "not possible (SQLite, or a URL with application_name)"


def chaos(
    context: typer.Context,
    app: Target = None,
    *,
    seconds: Annotated[
        float, typer.Option(metavar="N", min=1, help="How long workers are disturbed.")
    ] = 60,
    workers: Annotated[
        int, typer.Option(metavar="N", min=2, max=100, help="Worker processes.")
    ] = 3,
    check: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="A query that tells whether all effects are right."),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="VALUE", help="The value that the query must return.  [no rows]"),
    ] = None,
    enqueue: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Enqueue jobs of this kind.  [run those that exist]"),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Their arguments; {n} is the number of the job, from 1."),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="How many to enqueue.  [100]")
    ] = None,
    lease: Annotated[
        str, typer.Option(metavar="TIME", help="The lease of the workers. Freezes are longer.")
    ] = "1s",
    drain: Annotated[
        str, typer.Option(metavar="TIME", help="How long jobs may take to end afterwards.")
    ] = "60s",
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Choose the faults as an earlier run.  [random]"),
    ] = None,
    tenant: TenantOption = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm that this is a database for tests.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Kill, freeze and cut off workers while they run jobs, then check the effects.

    It starts workers of the application, and stops them at the end. It exits with 0 if the query
    returns what is expected, all jobs have ended, and none is dead; otherwise with 1.
    """
    # Imported here: other commands start faster without it.
    from onefold.testing.chaos import Chaos, Check

    app = app or configured("worker", "app")
    if app is None:
        raise UsageError(
            "No application is given: run onefold chaos MODULE:APP, or set ONEFOLD_APP."
        )
    if expect is not None and check is None:
        raise ConflictingOptions("expect", "needs a query: add --check SQL")
    for option, given in (("payload", payload), ("count", number)):
        if given is not None and enqueue is None:
            raise ConflictingOptions(option, "is for new jobs: add --enqueue KIND")
    onefold = context.with_resource(load_app(app))
    if not yes:
        raise UsageError(
            f"This runs the jobs of {onefold.context.database.label} and kills their workers: use a"
            " database for tests. Add --yes to do it."
        )
    run = Chaos(
        onefold,
        app,
        workers=workers,
        seconds=seconds,
        lease=parsers.duration(lease, "lease"),
        drain=parsers.duration(drain, "drain"),
        seed=secrets.randbelow(SEEDS) if seed is None else seed,
        tenant=tenant,
        load=_load(onefold, enqueue, payload or "{}", number or 100, tenant) if enqueue else None,
        check=None if check is None else Check(check, expect),
    )
    report = _run(run, seconds)
    value = {**msgspec.structs.asdict(report), "holds": report.holds}
    fields = _fields(report) | {"check": check and _shown(report.result), "seed": report.seed}
    verdict = _verdict(report) or (HOLDS if check else NOT_CHECKED)
    cli = CliContext(onefold, tenant, as_json=as_json)
    cli.answer(value, "\n".join((*field_lines(fields), "", verdict)))
    raise typer.Exit(0 if report.holds else 1)


def _load(onefold: Onefold, kind: str, payload: str, number: int, tenant: str) -> Load:
    from onefold.testing.chaos import Load

    job = onefold.jobs.get(kind)
    if job is None:
        declared = ", ".join(onefold.jobs.kinds) or "none"
        raise InvalidInput("enqueue", f"must be a declared job ({declared}), got {kind!r}")
    return Load(job.tenant(tenant) if tenant else job, payload, number)


def _run(run: Chaos, seconds: float) -> Report:
    """Run it with a progress bar, on a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=seconds)

        def tell(passed: float) -> None:
            report = run.report
            faults = f"{report.kills} kills, {report.freezes} freezes, {report.cuts or 0} cuts"
            text = faults if passed < seconds else f"{faults}; waiting for the jobs"
            progress.update(task, completed=passed, description=text)

        return run.run(tell)


def _fields(report: Report) -> dict[str, object]:
    jobs = ", ".join(f"{number} {state}" for state, number in sorted(report.jobs.items()))
    return {
        "kills": report.kills,
        "freezes": report.freezes,
        "cuts": NOT_CUT if report.cuts is None else report.cuts,
        "ended": f"{report.ended} workers, by themselves" if report.ended else None,
        "jobs": jobs or "none",
        "redelivered": report.delivered_again,
        "replayed": report.replayed or None,
    }


def _shown(result: str | None) -> str:
    return "no rows" if result is None else result


def _verdict(report: Report) -> str | None:
    """What is wrong, in one sentence, and what to do next; None if it holds."""
    if report.result != report.expected:
        wanted = _shown(report.expected)
        return f"The check should return {wanted}. Find the line with assert_idempotent."
    if report.left:
        return f"{report.left} jobs have not ended. Look at onefold jobs, or wait with --drain."
    if report.jobs.get("dead"):
        return f"{report.jobs['dead']} jobs are dead. Look at them with onefold dead."
    if not report.jobs:
        return "No job was run. Enqueue some first, or add --enqueue KIND."
    return None
