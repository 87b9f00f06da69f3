"""What a worker says when it starts: where it works, on what, and what it promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onefold.calls.procedure import Conductor
    from onefold.worker.handlers import Handlers
    from onefold.worker.settings import WorkerSettings


SHOWN: Final = 20
"""Queues that are named: a courier may have thousands."""


def report(conductor: Conductor, registry: Handlers, settings: WorkerSettings) -> list[str]:
    """The lines of the report."""
    database = conductor.database
    sql = database.sql
    where = f"schema {sql.schema}, " if sql.dialect == "postgres" else ""
    shards = f"{sql.shards} shard{'s' if sql.shards > 1 else ''}"
    queues = ", ".join(
        queue if most is None else f"{queue} (at most {most})"
        for queue, most in list(settings.queues.items())[:SHOWN]
    )
    more = len(settings.queues) - SHOWN
    queues += f" and {more} more" if more > 0 else "" if queues else "none yet"
    kinds = ", ".join(sorted(registry.kinds)) or "none: it will only do chores"
    lease, grace = settings.lease.total_seconds(), settings.grace.total_seconds()
    return [
        f"Worker {settings.name} on {database.label} ({where}{shards}).",
        f"Queues: {queues}. Kinds: {kinds}.",
        f"{settings.concurrency} handlers at once, up to {settings.most_prefetched} jobs ahead.",
        f"A lease lasts {lease:g} s, a stop takes {grace:g} s at most.",
        "Every job is run at least once.",
        "What a handler does in run.transaction(), and each result of run.step(), lands once.",
    ]
