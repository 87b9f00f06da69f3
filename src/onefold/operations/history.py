"""What is kept beside a job: the history of its deliveries, and the claims it made for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import JobNotFound
from onefold.model.history import Attempt, history
from onefold.model.identity import shard_of
from onefold.model.job import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onefold.operations.statement import Operation, Sql

KEPT_DELIVERIES: Final = 50
"""So many of a job's last deliveries are remembered: one that is deferred for ever stays small."""


class Past(msgspec.Struct, frozen=True, gc=False):
    """A delivery that has ended, in the order of ATTEMPT_COLUMNS, less the shard."""

    job_id: str
    fence: int
    attempt: int
    outcome: str
    worker: str | None
    started_at: int | None
    ended_at: int
    reason: str | None = None
    error: str | None = None


ATTEMPT_COLUMNS: Final = (
    "shard", "job_id", "fence", "attempt", "outcome", "worker", "started_at", "ended_at", "reason",
    "error",
)  # fmt: skip


def note(sql: Sql, shard: int, ended: Sequence[Past]) -> Operation[None]:
    """Remember how deliveries ended; of jobs that have had very many, the last ones."""
    if not ended:
        return
    rows = [(shard, *msgspec.structs.astuple(past)) for past in ended]
    yield sql("insert_attempts", ATTEMPT_COLUMNS, rows)
    old = [
        (shard, past.job_id, past.fence - KEPT_DELIVERIES)
        for past in ended
        if past.fence > KEPT_DELIVERIES
    ]
    if old:
        yield sql("delete_old_attempts", ("shard", "id", "fence"), old)


def forget(sql: Sql, shard: int, jobs: Iterable[tuple[str, str]]) -> Operation[None]:
    """Remove what was kept beside jobs (id and tenant) that are gone, or tombstones now.

    Their rows are locked before their claims, against the order of everything else: nobody asks
    for these claims but the jobs' own deliveries, and those have ended.
    """
    gone = sorted(jobs)
    if not gone:
        return
    yield sql("delete_attempts", ("shard", "id"), [(shard, job_id) for job_id, _ in gone])
    steps = [(shard, tenant, job_id) for job_id, tenant in gone]
    yield sql("delete_steps", ("shard", "tenant", "scope"), steps)


def attempts(sql: Sql, tenant: str, job_id: str) -> Operation[list[Attempt]]:
    """The deliveries of a job, the newest last."""
    shard = shard_of(job_id, sql.shards)
    found = yield sql("get_jobs", ("shard", "id"), [(shard, job_id)], tenant=tenant)
    if not found:
        raise JobNotFound(job_id)
    rows = yield sql("find_attempts", shard=shard, id=job_id)
    return history(Job.from_row(found[0]), map(Attempt.from_row, rows))
