"""`DeadJobs`: find, replay and delete dead letters, many at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from onefold.app.context import Noun
from onefold.app.jobs import FindOptions, JobResults, finding, job_filter
from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.job import Enqueued, EnqueuedMany, JobPage
from onefold.operations import jobs
from onefold.runtime import Procedure, awaited, call, transact

if TYPE_CHECKING:
    from typing import Unpack

    from onefold.operations.statement import Operation, Sql

BATCH: Final = 500
"""Jobs per transaction: an interrupted call has committed whole batches."""


class DeadJobs(Noun):
    """Jobs that have failed for good, or those of another `state`."""

    @call
    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = False,
        **filters: Unpack[FindOptions],
    ) -> Procedure[JobPage]:
        """Dead jobs by filter, one page per call: `after=page.next` continues."""
        build = finding(
            self._context, _dead(filters), limit=limit, after=after, newest_first=newest_first
        )
        return transact(build, write=False)

    afind: Final = awaited(find)

    @call
    def replay(
        self,
        *,
        fresh: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **filters: Unpack[FindOptions],
    ) -> Procedure[EnqueuedMany]:
        """Run dead jobs again, by filter.

        Safe to repeat: a replayed job is not dead any more. If `limit` has ended the call,
        `after=answer.next` continues after the jobs that did not change.
        """
        _check_limit(limit)
        checks.flag(fresh, "fresh")
        wanted = job_filter(_dead(filters))
        answers: list[Enqueued] = []
        while True:
            size = BATCH if limit is None else min(BATCH, limit - len(answers))
            page, replayed = yield from transact(
                partial(_replay_page, self._context.tenant, wanted, size, after, fresh=fresh)
            )
            answers += replayed
            after = page.next
            if after is None or (limit is not None and len(answers) >= limit):
                return EnqueuedMany.of(answers, JobResults(self._context), next=after)

    areplay: Final = awaited(replay)

    @call
    def delete(self, *, limit: int | None = None, **filters: Unpack[FindOptions]) -> Procedure[int]:
        """Remove dead jobs by filter, and release their keys; returns how many.

        Safe to repeat. A job that changes meanwhile stays: a replayed job is not dead any more.
        """
        _check_limit(limit)
        wanted = job_filter(_dead(filters))
        count = 0
        after: str | None = None
        while True:
            size = BATCH if limit is None else min(BATCH, limit - count)
            page, deleted = yield from transact(
                partial(_delete_page, self._context.tenant, wanted, size, after)
            )
            count += deleted
            after = page.next
            if after is None or (limit is not None and count >= limit):
                return count

    adelete: Final = awaited(delete)


def _replay_page(
    tenant: str, wanted: jobs.JobFilter, limit: int, after: str | None, sql: Sql, *, fresh: bool
) -> Operation[tuple[JobPage, list[Enqueued]]]:
    page = yield from jobs.find(sql, tenant, wanted, limit=limit, after=after, whole=False)
    ids = [job.id for job in page]
    replayed = yield from jobs.replay(sql, tenant, ids, fresh=fresh, strict=False)
    return page, replayed


def _delete_page(
    tenant: str, wanted: jobs.JobFilter, limit: int, after: str | None, sql: Sql
) -> Operation[tuple[JobPage, int]]:
    page = yield from jobs.find(sql, tenant, wanted, limit=limit, after=after, whole=False)
    seen = {job.id: job for job in page}
    deleted = yield from jobs.delete(sql, tenant, list(seen), seen=seen)
    return page, len(deleted)


def _dead(filters: FindOptions) -> FindOptions:
    return {"state": "dead", **filters}


def _check_limit(limit: int | None) -> None:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput("limit", f"must be a whole number from 1, got {limit!r}")
