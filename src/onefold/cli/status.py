"""`onefold status`: queues, workers, failures and duplicates, on one screen."""

from __future__ import annotations

import typer

from onefold.cli.command_context import CliContext, print_table, with_context
from onefold.cli.overview import ERROR_COLUMNS, NO_QUEUE, QUEUE_COLUMNS, WORKER_COLUMNS, look
from onefold.cli.render import struct_value


@with_context
def status(cli: CliContext) -> None:
    """Show queues, workers, the last errors and suppressed duplicates, on one screen.

    `onefold top` shows the same, live. Numbers of the last minutes and of the last day are
    statistics: processes write them every few seconds.
    """
    seen = look(cli.onefold, cli.calls)
    if cli.as_json:
        value = {**struct_value(seen), "errors": [struct_value(job) for job in seen.errors]}
        return cli.answer(value, "")
    typer.echo(seen.headline)
    queues = [one.cells for one in seen.queues]
    for columns, rows, note in (
        (QUEUE_COLUMNS, queues, None if queues else NO_QUEUE),
        (WORKER_COLUMNS, seen.worker_rows, seen.worker_note),
        (ERROR_COLUMNS, seen.error_rows, None if seen.errors else "No job has failed."),
    ):
        typer.echo()
        if rows:
            print_table(columns, rows)
        if note:
            typer.echo(note)
    return None
