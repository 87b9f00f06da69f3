"""`onefold workers`: the workers that run."""

from __future__ import annotations

from onefold.cli.command_context import CliContext, with_context
from onefold.cli.overview import START
from onefold.cli.render import struct_value, when

COLUMNS = ("worker", "host", "pid", "running", "of", "queues", "kinds", "state", "started", "seen")


@with_context
def workers(cli: CliContext) -> None:
    """List workers: where they run, and how many jobs they have.

    A worker that stops is gone from the list. One that was killed is shown as gone after two
    minutes, and for about an hour.
    """
    found = cli.onefold.workers.find()
    cli.answer_table(
        [struct_value(worker) for worker in found],
        COLUMNS,
        [
            (
                worker.name,
                worker.host,
                worker.pid,
                worker.running,
                worker.concurrency,
                ", ".join(worker.queues),
                "any (pushes)" if worker.kinds is None else ", ".join(worker.kinds),
                "alive" if worker.alive else "gone",
                when(worker.started_at),
                when(worker.seen_at),
            )
            for worker in found
        ],
        none=f"No worker runs. {START}",
    )
