"""`onefold worker`: run the jobs of an application, in one process or in several."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import typer

from onefold import InvalidInput, UsageError
from onefold.cli import logs, parsers
from onefold.cli.app_loader import load_app
from onefold.cli.config import Configuration
from onefold.worker.job_log import job_log
from onefold.worker.settings import read_queues, worker_settings
from onefold.worker.signals import run_until_signal
from onefold.worker.supervisor import Supervisor, stop_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onefold.worker.settings import WorkerOptions

AS_PROCESS: Final = "--as-process"
"""Of one of several processes: its number, and the process id of the supervisor."""


_option = partial(parsers.option, "ONEFOLD_WORKER_")

Target: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP", envvar="ONEFOLD_APP", help="The Onefold object of the application."
    ),
]


def worker(
    context: typer.Context,
    app: Target = None,
    *,
    queues: Annotated[
        str | None,
        _option("QUEUES", "NAME[:N],…", "Queues, and the jobs of each at once.  [all declared]"),
    ] = None,
    concurrency: Annotated[
        int | None, _option("CONCURRENCY", "N", "Handlers at once, in each process.  [20]")
    ] = None,
    processes: Annotated[
        int, _option("PROCESSES", "N", "Processes, each with its own handlers.")
    ] = 1,
    prefetch: Annotated[
        int | None, _option("PREFETCH", "N", "Jobs taken in advance.  [automatic]")
    ] = None,
    lease: Annotated[
        str | None, _option("LEASE", "TIME", "How long a crashed worker holds its jobs.  [30s]")
    ] = None,
    heartbeat: Annotated[
        str | None, _option("HEARTBEAT", "TIME", "How often leases are renewed.  [lease / 4]")
    ] = None,
    poll: Annotated[
        str | None, _option("POLL", "TIME", "How often to poll without notifications.  [5s]")
    ] = None,
    grace: Annotated[
        str | None, _option("GRACE", "TIME", "How long a stop may take.  [30s]")
    ] = None,
    name: Annotated[
        str | None, _option("NAME", "NAME", "The worker in logs and attempts.  [generated]")
    ] = None,
    chores: Annotated[
        bool,
        _option("CHORES", None, "Also rescue, prune, sweep and tick.", "--chores/--no-chores"),
    ] = True,
    log_format: Annotated[str, _option("LOG_FORMAT", "FORMAT", "text or json")] = "text",
    log_level: Annotated[
        str, _option("LOG_LEVEL", "LEVEL", "debug, info, warning or error")
    ] = "info",
    quiet: Annotated[
        bool,
        _option("QUIET", None, "Log only jobs that fail.", "--quiet"),
    ] = False,
    as_process: Annotated[str | None, typer.Option(AS_PROCESS, hidden=True)] = None,
) -> None:
    """Run jobs until a signal. Times are like 30s, 5m, 250ms.

    Options that are not given are read from the environment (ONEFOLD_WORKER_LEASE), then from
    [worker] of onefold.toml or [tool.onefold.worker] of pyproject.toml.
    """
    number, _, supervisor = (as_process or "").partition(":")
    times = {"lease": lease, "heartbeat": heartbeat, "poll": poll, "grace": grace}
    counts = {"concurrency": concurrency, "prefetch": prefetch}
    try:
        logs.configure(log_format, log_level)
        options = _options(times, counts, queues=queues, chores=chores)
        # Each worker needs a name of its own.
        options["name"] = f"{name}-{number}" if name and number else name
        is_supervisor = parsers.process_count(processes) > 1 and not supervisor
        settings = worker_settings(options)
        options["name"] = settings.name
    except InvalidInput as error:
        raise _with_place(error, context) from error
    if app is None:
        raise UsageError(
            "No application is given: run onefold worker MODULE:APP, or set ONEFOLD_APP, or app in"
            " [tool.onefold.worker] of pyproject.toml."
        )
    if is_supervisor:
        raise typer.Exit(Supervisor(_command, processes, settings.grace).run())
    if supervisor:
        stop_with_parent(int(supervisor), settings.grace)
    logs.configure(log_format, log_level, worker=settings.name)
    if quiet:
        job_log.setLevel(logging.WARNING)
    onefold = load_app(app)
    onefold.context.hooks.in_processes = partial(
        logs.configure_here, form=log_format, level=log_level, worker=settings.name
    )
    run_until_signal(lambda: onefold.worker(**options), onefold.aclose, supervised=bool(supervisor))


def _command(number: int) -> Sequence[str]:
    """The same command, for one of its processes."""
    own = sys.argv[sys.argv.index("worker") + 1 :]
    place = f"{AS_PROCESS}={number}:{os.getpid()}"
    return [sys.executable, "-m", "onefold", "worker", place, *own]


def _options(
    times: Mapping[str, str | None],
    counts: Mapping[str, int | None],
    *,
    queues: str | None,
    chores: bool,
) -> WorkerOptions:
    """The options that are given. The worker has defaults for the others."""
    given: dict[str, Any] = {"chores": chores}
    if queues is not None:
        given["queues"] = read_queues(queues)
    given |= {field: count for field, count in counts.items() if count is not None}
    given |= {
        field: parsers.duration(time, field) for field, time in times.items() if time is not None
    }
    return cast("WorkerOptions", given)


def _with_place(error: InvalidInput, context: typer.Context) -> InvalidInput:
    """The same error with the place of the value: a flag, a variable or a file."""
    field = error.field.partition("[")[0]
    source = context.get_parameter_source(field)
    match source and source.name:
        case "COMMANDLINE":
            where = f"--{field.replace('_', '-')}"
        case "ENVIRONMENT":
            where = f"ONEFOLD_WORKER_{field.upper()}"
        case "DEFAULT_MAP":
            found = context.find_object(Configuration)
            where = f"tool.onefold.worker.{field} in {found and found.path}"
        case _:
            return error
    return type(error)(where, error.reason)
