"""What a worker says when it starts: where it works, on what, and what it promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    queues = _named(
        queue if most is None else f"{queue} (at most {most})"
        for queue, most in settings.queues.items()
    )
    kinds = ", ".join(sorted(registry.kinds)) or "none: it will only do chores"
    lease, grace = settings.lease.total_seconds(), settings.grace.total_seconds()
    return [
        f"Worker {settings.name} on {database.label} ({where}{shards}).",
        f"Queues: {queues or 'none yet'}. Kinds: {kinds}.",
        f"{settings.concurrency} handlers at once, up to {settings.most_prefetched} jobs ahead.",
        f"A lease lasts {lease:g} s, a stop takes {grace:g} s at most.",
        "Every job is run at least once.",
        "What a handler does in run.transaction(), and each result of run.step(), lands once.",
    ]


def unserved(settings: WorkerSettings, declared: Mapping[str, bool]) -> list[str]:
    """A warning about queues that the code declares and that this worker does not serve."""
    names = _named(queue for queue in declared if queue not in settings.queues)
    warning = (
        f"This worker does not serve these declared queues: {names}. Their jobs wait for another"
        " worker. To serve them here, add them to its queues."
    )
    return [warning] if names else []


def unused(settings: WorkerSettings, declared: Mapping[str, bool]) -> list[str]:
    """A warning about queues that this worker serves and that no job is declared for."""
    names = _named(queue for queue in settings.queues if not declared.get(queue))
    warning = (
        f"No job is declared for these queues of this worker: {names}. Check their spelling, or"
        " ignore this where jobs are enqueued there by name."
    )
    return [warning] if names else []


def _named(queues: Iterable[str]) -> str:
    names = list(queues)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
