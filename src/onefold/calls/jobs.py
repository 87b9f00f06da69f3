"""The calls about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from onefold.calls.history import HistoryCalls
from onefold.calls.outside import warn_if_inside
from onefold.calls.procedure import Conductor, Gather, Procedure, Transaction, once_through
from onefold.calls.results import JobResults
from onefold.databases.batching import Item
from onefold.databases.handler_transaction import innermost
from onefold.errors import InvalidInput, JobNotFound, WrongState
from onefold.model import checks
from onefold.model.checks import REASON_BYTES, text
from onefold.model.ids import parse_id
from onefold.model.job import (
    Duplicates,
    Enqueued,
    EnqueuedMany,
    Job,
    JobPage,
    Json,
    KeyRule,
    NewJob,
    OnDuplicate,
    OnMismatch,
    UniqueWhile,
)
from onefold.model.job_result import asking
from onefold.model.lifecycle import Event, State, allows
from onefold.model.new_job import prepare, prepare_all
from onefold.operations import endings, enqueue, jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta
    from typing import Unpack

    from onefold.databases import Build
    from onefold.model.lifecycle import Retention
    from onefold.model.new_job import Prepared
    from onefold.model.retry import Backoff
    from onefold.operations.enqueue import DuplicatePolicy
    from onefold.operations.statement import Operation, Sql

BATCH: Final = 500
"""Jobs per transaction of a call by filter: what dies midway has done whole batches."""

DEFAULT_POLICY: Final = enqueue.KEEP_HOLDER
EMPTY: Final[Mapping[str, Json]] = {}
"""The payload of a job that is given none. None is a payload: JSON's null."""


class CallOptions(TypedDict, total=False):
    """What a call wants done about duplicates."""

    on_duplicate: OnDuplicate
    on_mismatch: OnMismatch
    max_wait: timedelta | None


class JobOptions(TypedDict, total=False):
    """What a job may be told, beside its kind and payload. See `NewJob`."""

    queue: str
    priority: int
    run_at: datetime | None
    delay: timedelta | None
    max_attempts: int
    unique_key: str | None
    unique: KeyRule | None
    unique_while: UniqueWhile | None
    unique_for: timedelta | None
    across_kinds: bool
    idempotency_key: str | None
    idempotency_for: timedelta
    backoff: Backoff | None
    retention: Retention | None
    expires_at: datetime | None
    timeout: timedelta | None
    group_key: str | None
    tags: Sequence[str]
    metadata: Mapping[str, Json] | None
    store_result: bool | None
    request_id: str | None
    trace: Mapping[str, str] | None
    tick: datetime | None


class EnqueueOptions(JobOptions, CallOptions, total=False):
    """Everything that `enqueue` may be told by name."""


class FindOptions(TypedDict, total=False):
    """Filters; several together must all hold."""

    status: str | Sequence[str] | None
    queue: str | None
    kind: str | None
    unique_key: str | None
    reason: str | None
    error_type: str | None
    created_from: datetime | None
    created_before: datetime | None
    ended_from: datetime | None
    ended_before: datetime | None
    tag: str | None


class JobCalls(HistoryCalls):
    """Enqueue, look, cancel, replay, delete."""

    _conductor: Conductor
    _tenant: str

    def enqueue(
        self, kind: str, payload: Json = EMPTY, **options: Unpack[EnqueueOptions]
    ) -> Enqueued:
        """Store a job, or find the one that already stands for the request.

        The answer's `duplicate` says which. Within a caller's transaction, with the default
        `on_duplicate="keep"`, the holder may already have run when you commit.
        """
        if innermost.get() is not None:
            warn_if_inside(self._conductor, kind)
        return self._conductor.run(self._enqueue_one(kind, payload, options))

    async def aenqueue(
        self, kind: str, payload: Json = EMPTY, **options: Unpack[EnqueueOptions]
    ) -> Enqueued:
        """`enqueue`, awaited."""
        if innermost.get() is not None:
            warn_if_inside(self._conductor, kind)
        return await self._conductor.arun(self._enqueue_one(kind, payload, options))

    def enqueue_many(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> EnqueuedMany:
        """Store many jobs, all or nothing, and answer for each, in order."""
        if innermost.get() is not None:
            warn_if_inside(self._conductor)
        return self._conductor.run(self._enqueue(new_jobs, options))

    async def aenqueue_many(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> EnqueuedMany:
        """`enqueue_many`, awaited."""
        if innermost.get() is not None:
            warn_if_inside(self._conductor)
        return await self._conductor.arun(self._enqueue(new_jobs, options))

    def _enqueue(self, new_jobs: Sequence[NewJob], options: CallOptions) -> Procedure[EnqueuedMany]:
        checks.options(options, CallOptions.__optional_keys__)
        policy = enqueue.policy(**options)
        listed = self._conductor.defaults.filled(checks.listed(new_jobs, "new_jobs", "NewJob"))
        # Prepared before the first try, so that every try stores the same ids.
        items = prepare_all(listed, self._tenant, now=self._conductor.now())
        if not items:
            return EnqueuedMany(())
        answers: list[Enqueued]
        with self._conductor.hooks.enqueueing(items) as under_way:
            stored = under_way.items
            answers = yield Transaction(lambda sql: enqueue.enqueue(sql, stored, policy))
            under_way.answers = answers
        return EnqueuedMany(answers, self._results())

    def _enqueue_one(
        self, kind: str, payload: Json, options: EnqueueOptions
    ) -> Procedure[Enqueued]:
        new_job, policy = _split(kind, payload, options)
        return (yield from self._enqueue_new(new_job, policy))

    def _enqueue_new(
        self, new_job: NewJob, policy: DuplicatePolicy = DEFAULT_POLICY
    ) -> Procedure[Enqueued]:
        """The bulk call with one item, and in one commit with those that others make now."""
        (new_job,) = self._conductor.defaults.filled((new_job,))
        item = prepare(new_job, self._tenant, now=self._conductor.now())
        answer: Enqueued
        with self._conductor.hooks.enqueueing((item,)) as under_way:
            answer = yield Gather(_shared(under_way.items[0], policy))
            under_way.answers = (answer,)
        return asking(answer, self._results())

    def _results(self) -> JobResults:
        """Who is asked for the results of what is enqueued here."""
        return JobResults(self._conductor, self._tenant)

    def get(self, job_id: str) -> Job | None:
        """The job, or None where there is none (any more) for this tenant."""
        return self._conductor.run(self._get(job_id))

    async def aget(self, job_id: str) -> Job | None:
        """`get`, awaited."""
        return await self._conductor.arun(self._get(job_id))

    def _get(self, job_id: str) -> Procedure[Job | None]:
        wanted = parse_id(job_id)
        found: dict[str, Job] = yield Transaction(
            lambda sql: jobs.get(sql, self._tenant, [wanted]), write=False
        )
        return found.get(wanted)

    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = False,
        **filters: Unpack[FindOptions],
    ) -> JobPage:
        """Jobs by filter, a page at a time: `after=page.next` continues."""
        return self._conductor.run(self._find(limit, after, newest_first, filters))

    async def afind(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = False,
        **filters: Unpack[FindOptions],
    ) -> JobPage:
        """`find`, awaited."""
        return await self._conductor.arun(self._find(limit, after, newest_first, filters))

    def _find(
        self,
        limit: int,
        after: str | None,
        newest_first: bool,  # noqa: FBT001 - passed on from a keyword
        filters: FindOptions,
    ) -> Procedure[JobPage]:
        wanted = _filter(filters)
        checks.flag(newest_first, "newest_first")
        return once_through(
            lambda sql: jobs.find(
                sql, self._tenant, wanted, limit=limit, after=after, newest_first=newest_first
            ),
            write=False,
        )

    def cancel(self, job_id: str, *, reason: str | None = None) -> bool:
        """Stop a queued or running job. False where it had been cancelled before.

        A running handler is told by its next heartbeat; it may still be running when this returns.
        """
        return self._conductor.run(self._cancel(job_id, reason))

    async def acancel(self, job_id: str, *, reason: str | None = None) -> bool:
        """`cancel`, awaited."""
        return await self._conductor.arun(self._cancel(job_id, reason))

    def _cancel(self, job_id: str, reason: str | None) -> Procedure[bool]:
        wanted = parse_id(job_id)
        why = None if reason is None else text(reason, "reason", longest=REASON_BYTES)
        before: dict[str, State | None] = yield Transaction(
            lambda sql: endings.cancel(sql, self._tenant, [wanted], reason=why)
        )
        state = before[wanted]
        if state is None:
            raise JobNotFound(wanted)
        if state is State.CANCELLED:
            return False
        if not allows(state, Event.CANCEL):
            raise WrongState(wanted, state=state.word, wanted="a queued or running job")
        return True

    def replay(self, job_id: str, *, fresh: bool = False) -> Enqueued:
        """Send a dead or cancelled job round again; with `fresh`, a completed one too.

        Where a newer job holds its key, the answer names that job and nothing is changed.
        """
        return self._conductor.run(self._replay(job_id, fresh=fresh))

    async def areplay(self, job_id: str, *, fresh: bool = False) -> Enqueued:
        """`replay`, awaited."""
        return await self._conductor.arun(self._replay(job_id, fresh=fresh))

    def _replay(self, job_id: str, *, fresh: bool) -> Procedure[Enqueued]:
        wanted = parse_id(job_id)
        checks.flag(fresh, "fresh")
        answers: list[Enqueued] = yield Transaction(
            lambda sql: jobs.replay(sql, self._tenant, [wanted], fresh=fresh)
        )
        return asking(answers[0], self._results())

    def replay_many(
        self,
        *,
        fresh: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **filters: Unpack[FindOptions],
    ) -> EnqueuedMany:
        """Replay by filter, dead letters by default.

        Safe to repeat: what has been replayed is no dead letter any more. Where `limit` ended it,
        `after=answer.next` goes on behind those that were left where they are.
        """
        return self._conductor.run(self._replay_many(filters, fresh, limit, after))

    async def areplay_many(
        self,
        *,
        fresh: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **filters: Unpack[FindOptions],
    ) -> EnqueuedMany:
        """`replay_many`, awaited."""
        return await self._conductor.arun(self._replay_many(filters, fresh, limit, after))

    def _replay_many(
        self,
        filters: FindOptions,
        fresh: bool,  # noqa: FBT001 - passed on from a keyword
        limit: int | None,
        after: str | None,
    ) -> Procedure[EnqueuedMany]:
        _check_limit(limit)
        checks.flag(fresh, "fresh")
        filters.setdefault("status", "dead")
        wanted = _filter(filters)
        answers: list[Enqueued] = []
        cursor = after
        while True:
            size = BATCH if limit is None else min(BATCH, limit - len(answers))
            page: JobPage
            page, replayed = yield Transaction(
                _replay_page(self._tenant, wanted, fresh=fresh, limit=size, after=cursor)
            )
            answers += replayed
            cursor = page.next
            if cursor is None or (limit is not None and len(answers) >= limit):
                return EnqueuedMany(answers, self._results(), next=cursor)

    def delete(self, job_id: str) -> bool:
        """Remove a job in any state and free its key, explicitly. False where there was none."""
        return self._conductor.run(self._delete(job_id))

    async def adelete(self, job_id: str) -> bool:
        """`delete`, awaited."""
        return await self._conductor.arun(self._delete(job_id))

    def _delete(self, job_id: str) -> Procedure[bool]:
        wanted = parse_id(job_id)
        deleted: set[str] = yield Transaction(lambda sql: jobs.delete(sql, self._tenant, [wanted]))
        return wanted in deleted

    def delete_many(self, *, limit: int | None = None, **filters: Unpack[FindOptions]) -> int:
        """Remove by filter, dead letters by default, and free their keys; answers how many.

        Safe to repeat. A job that changed while we looked is left alone: one that was replayed is
        no dead letter any more.
        """
        return self._conductor.run(self._delete_many(filters, limit=limit))

    async def adelete_many(
        self, *, limit: int | None = None, **filters: Unpack[FindOptions]
    ) -> int:
        """`delete_many`, awaited."""
        return await self._conductor.arun(self._delete_many(filters, limit=limit))

    def _delete_many(self, filters: FindOptions, *, limit: int | None) -> Procedure[int]:
        _check_limit(limit)
        filters.setdefault("status", "dead")
        wanted = _filter(filters)
        count = 0
        cursor: str | None = None
        while True:
            size = BATCH if limit is None else min(BATCH, limit - count)
            page: JobPage
            deleted: int
            page, deleted = yield Transaction(
                _delete_page(self._tenant, wanted, limit=size, after=cursor)
            )
            count += deleted
            cursor = page.next
            if cursor is None or (limit is not None and count >= limit):
                return count

    def duplicates(self, job_id: str) -> Duplicates:
        """What the job's keys have suppressed: how many, when, and by which request ids."""
        return self._conductor.run(self._duplicates(job_id))

    async def aduplicates(self, job_id: str) -> Duplicates:
        """`duplicates`, awaited."""
        return await self._conductor.arun(self._duplicates(job_id))

    def _duplicates(self, job_id: str) -> Procedure[Duplicates]:
        wanted = parse_id(job_id)
        return once_through(lambda sql: jobs.duplicates(sql, self._tenant, wanted), write=False)


def _split(kind: str, payload: Json, options: EnqueueOptions) -> tuple[NewJob, DuplicatePolicy]:
    """What is said of the job, and what of the call."""
    checks.options(options, EnqueueOptions.__optional_keys__)
    rest: dict[str, Any] = dict(options)
    call = {name: rest.pop(name) for name in CallOptions.__optional_keys__ if name in rest}
    # The job gets a dictionary of its own: a rule for its key is the caller's code.
    content: Json = {} if payload is EMPTY else payload
    return NewJob(kind, content, **rest), enqueue.policy(**call) if call else DEFAULT_POLICY


def _check_limit(limit: int | None) -> None:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput("limit", f"must be a whole number from 1, got {limit!r}")


def _filter(filters: FindOptions) -> jobs.JobFilter:
    """Check a filter. An empty list of states is a slip: it would let everything through."""
    checks.options(filters, FindOptions.__optional_keys__)
    status = filters.get("status")
    if status is not None and not isinstance(status, str):
        words = checks.listed(status, "status", "words")
        if not words or not all(isinstance(word, str) for word in words):
            raise InvalidInput("status", f"must be a word or a list of words, got {words!r}")
        filters["status"] = words
    return jobs.job_filter(**filters)


def _shared(item: Prepared, policy: DuplicatePolicy) -> Item[Prepared, Enqueued]:
    """An enqueue that can be run together with others of the same policy, whoever's they are."""

    def many(sql: Sql, items: Sequence[Prepared]) -> Operation[list[Enqueued]]:
        return enqueue.enqueue_singly(sql, items, policy)

    request, publish = item.request, item.publish
    # A publish key is mostly the caller's own. Of the two, the unique key is what others hold.
    key = request.unique or (request.id if publish is None else publish.key)
    return Item(many, item, ("enqueue", policy), key)


def _replay_page(
    tenant: str, wanted: jobs.JobFilter, *, fresh: bool, limit: int, after: str | None
) -> Build[tuple[JobPage, list[Enqueued]]]:
    def build(sql: Sql) -> Operation[tuple[JobPage, list[Enqueued]]]:
        page = yield from jobs.find(sql, tenant, wanted, limit=limit, after=after)
        ids = [job.id for job in page]
        replayed = yield from jobs.replay(sql, tenant, ids, fresh=fresh, strict=False)
        return page, replayed

    return build


def _delete_page(
    tenant: str, wanted: jobs.JobFilter, *, limit: int, after: str | None
) -> Build[tuple[JobPage, int]]:
    def build(sql: Sql) -> Operation[tuple[JobPage, int]]:
        page = yield from jobs.find(sql, tenant, wanted, limit=limit, after=after)
        seen = {job.id: job for job in page}
        deleted = yield from jobs.delete(sql, tenant, list(seen), seen=seen)
        return page, len(deleted)

    return build
