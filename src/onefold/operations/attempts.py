"""The history of a job's deliveries, and the claims that belong to the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import JobNotFound
from onefold.model.attempt import Attempt, history
from onefold.model.ids import shard_of
from onefold.model.job import Job
from onefold.operations.publish_keys import KEY_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onefold.operations.statement import Operation, Sql

KEPT_DELIVERIES: Final = 50
"""How many deliveries of a job are kept: a job that is deferred often stays small."""


class Past(msgspec.Struct, frozen=True, gc=False):
    """A delivery that has ended, in the order of ATTEMPT_COLUMNS, without the shard."""

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
    """Store how deliveries ended; only the last ones of each job are kept."""
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
    """Remove the history and the claims of jobs (id and tenant) that are deleted or tombstones.

    Here rows are locked before claims, against the usual order: only the job's own deliveries use
    these claims. If one still does, the result is a deadlock, and our own transactions try again.
    """
    gone = sorted(jobs)
    if not gone:
        return
    yield sql("delete_attempts", ("shard", "id"), [(shard, job_id) for job_id, _ in gone])
    scopes = [(shard, tenant, job_id) for job_id, tenant in gone]
    claims = yield sql("find_job_claims", ("shard", "tenant", "scope"), scopes)
    if claims:
        yield sql("delete_job_claims", KEY_COLUMNS, [(shard, *claim) for claim in claims])


def attempts(sql: Sql, tenant: str, job_id: str) -> Operation[list[Attempt]]:
    """The deliveries of a job, newest last."""
    _, known = yield from with_attempts(sql, tenant, job_id)
    return known


def with_attempts(sql: Sql, tenant: str, job_id: str) -> Operation[tuple[Job, list[Attempt]]]:
    """A job and its deliveries, read together."""
    shard = shard_of(job_id, sql.shards)
    found = yield sql("get_jobs", ("shard", "id"), [(shard, job_id)], tenant=tenant)
    if not found:
        raise JobNotFound(job_id)
    job = Job.from_row(found[0])
    rows = yield sql("find_attempts", shard=shard, id=job_id)
    return job, history(job, map(Attempt.from_row, rows))
