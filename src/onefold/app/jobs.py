"""The calls on jobs: enqueue, get, find, cancel, run now, replay, delete, wait for results."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict

from msgspec.structs import replace

from onefold.app.outside_transaction import warn_if_inside
from onefold.databases.batching import Item
from onefold.databases.handler_transaction import innermost
from onefold.errors import InvalidInput, JobFailed, JobNotFound, ResultTimeout, WrongState
from onefold.jobs.enqueue_options import EMPTY, CallOptions, EnqueueOptions
from onefold.model import checks
from onefold.model.checks import REASON_BYTES, text
from onefold.model.ids import parse_id, shard_of
from onefold.model.job import Enqueued, EnqueuedMany, Job, JobPage, Json, NewJob, set_results
from onefold.model.lifecycle import Event, State, allows
from onefold.model.new_job import in_parts, prepare, prepare_all
from onefold.model.timestamps import span
from onefold.operations import endings, enqueue, jobs
from onefold.runtime import (
    Calls,
    Pause,
    Procedure,
    awaited,
    batch,
    call,
    transact,
    waits,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Unpack

    from onefold.app.context import Context
    from onefold.databases import Build
    from onefold.model.new_job import Parts, Prepared
    from onefold.operations.enqueue import DuplicatePolicy

FOREVER: Final = timedelta(days=365 * 100)


class FindOptions(TypedDict, total=False):
    """Filters; several together must all match."""

    state: str | Sequence[str] | None
    id: str | None
    """An id, or its first 8 or more digits."""
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
    text: str | None
    """A text in the payload, without regard to case. One call searches 2,000 payloads."""


class JobCalls(Calls):
    """Enqueue, get, find, cancel, run now, replay, delete."""

    context: Context

    @call
    def enqueue(
        self, kind: str, payload: Json = EMPTY, **options: Unpack[EnqueueOptions]
    ) -> Procedure[Enqueued]:
        """Store a job, or find the job that an equal request has stored before.

        The field `duplicate` of the result says which. Within a caller's transaction, with the
        default `on_duplicate="keep"`, the other job may already have run when you commit.
        """
        # For speed: most calls are not inside of a transaction of ours.
        if innermost.get() is not None:
            warn_if_inside(self.context, kind)
        return enqueue_kind(self.context, kind, payload, options)

    aenqueue: Final = awaited(enqueue)

    @call
    def enqueue_many(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> Procedure[EnqueuedMany]:
        """Store many jobs, all or none; the results are in the order of the jobs."""
        if innermost.get() is not None:
            warn_if_inside(self.context)
        context = self.context
        checks.options(options, CallOptions.__optional_keys__)
        policy = enqueue.policy(**options)
        listed = context.defaults.filled(checks.listed(new_jobs, "new_jobs", "NewJob"))
        if (parts := self._parts(listed, policy)) is not None:
            answers = yield from transact(lambda sql: enqueue.enqueue_parts(sql, parts))
            many = EnqueuedMany.of(answers, JobResults(context))
            if many.skipped:
                context.duplicate_log.note_jobs(parts.items, answers)
            return many
        # Prepared before the first try, so that every try stores the same ids.
        items = prepare_all(listed, context.tenant, now=context.now)
        if not items:
            return EnqueuedMany.of(())
        with context.hooks.enqueueing(items) as under_way:
            stored = under_way.items
            noted = context.borrowed is not None
            answers = yield from transact(
                lambda sql: enqueue.enqueue(sql, stored, policy, notes=noted)
            )
            under_way.answers = answers
        if not noted:
            context.duplicate_log.note_jobs(items, answers)
        return EnqueuedMany.of(answers, JobResults(context))

    aenqueue_many: Final = awaited(enqueue_many)

    def _parts(self, new_jobs: Sequence[NewJob], policy: DuplicatePolicy) -> Parts | None:
        """The parts of a large call, if parts of it can be stored before the others are known."""
        context, hooks = self.context, self.context.hooks
        is_watched = hooks.around_enqueue or hooks.carrier is not None or hooks.listeners
        if context.borrowed is not None or is_watched or policy != enqueue.KEEP_HOLDER:
            return None
        if context.store.database.sql.inserts_row_by_row:
            return None
        return in_parts(new_jobs, context.tenant, now=context.now)

    @call
    def get(self, job_id: str) -> Procedure[Job | None]:
        """The job, or None if this tenant has no such job, or no longer has it."""
        wanted = parse_id(job_id)
        found = yield from transact(
            lambda sql: jobs.get(sql, self.context.tenant, [wanted]), write=False
        )
        return found.get(wanted)

    aget: Final = awaited(get)

    @call
    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = False,
        **filters: Unpack[FindOptions],
    ) -> Procedure[JobPage]:
        """Jobs by filter, one page per call: `after=page.next` continues.

        One call looks at 10,000 jobs, so a page may have few jobs or none, and a `next`. A page
        ends after 4 MiB.
        """
        build = finding(self.context, filters, limit=limit, after=after, newest_first=newest_first)
        return transact(build, write=False)

    afind: Final = awaited(find)

    @call
    def cancel(self, job_id: str, *, reason: str | None = None) -> Procedure[bool]:
        """Stop a queued or running job. False if it was cancelled before.

        A running handler is cancelled at its next heartbeat, so it may still run when this
        returns.
        """
        wanted = parse_id(job_id)
        why = None if reason is None else text(reason, "reason", longest=REASON_BYTES)
        before = yield from transact(
            lambda sql: endings.cancel(sql, self.context.tenant, [wanted], reason=why)
        )
        return _cancelled(wanted, before[wanted])

    acancel: Final = awaited(cancel)

    @call
    def run_now(self, job_id: str) -> Procedure[bool]:
        """Make a scheduled or retrying job due now. False if it was due already, or is running.

        Its attempts stay as they are. An ended job raises `WrongState`: `replay` runs it again.
        """
        wanted = parse_id(job_id)
        changed = yield from transact(lambda sql: jobs.run_now(sql, self.context.tenant, [wanted]))
        return bool(changed)

    arun_now: Final = awaited(run_now)

    @call
    def replay(self, job_id: str, *, fresh: bool = False) -> Procedure[Enqueued]:
        """Run a dead or cancelled job again; with `fresh`, a completed one too.

        If a newer job holds its key, the result names that job and nothing is changed.
        """
        wanted = parse_id(job_id)
        checks.flag(fresh, "fresh")
        (answer,) = yield from transact(
            lambda sql: jobs.replay(sql, self.context.tenant, [wanted], fresh=fresh)
        )
        set_results(answer, JobResults(self.context))
        return answer

    areplay: Final = awaited(replay)

    @call
    def delete(self, job_id: str) -> Procedure[bool]:
        """Remove a job in any state and release its key. False if there is no such job."""
        wanted = parse_id(job_id)
        deleted = yield from transact(lambda sql: jobs.delete(sql, self.context.tenant, [wanted]))
        return bool(deleted)

    adelete: Final = awaited(delete)


class JobResults:
    """Waits for the results of one tenant's jobs by polling.

    It uses our own connection, even if the job was enqueued on the caller's: the job can only run
    after that transaction has committed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def wait(self, job_id: str, timeout: timedelta | None) -> Job:
        """Wait until the job has ended; returns it if it is completed."""
        return self._context.own().runtime.run(self._wait(job_id, timeout))

    async def await_result(self, job_id: str, timeout: timedelta | None) -> Job:  # noqa: ASYNC109 - sync and async wait alike
        """`wait`, awaited."""
        return await self._context.own().runtime.arun(self._wait(job_id, timeout))

    def _wait(self, job_id: str, timeout: timedelta | None) -> Procedure[Job]:
        job = yield from wait_for_end(self._context.tenant, job_id, timeout)
        if job.state != "completed":
            raise JobFailed(
                job.id, kind=job.kind, state=job.state, reason=job.reason, error=job.error
            )
        return job


def wait_for_end(tenant: str, job_id: str, timeout: timedelta | None) -> Procedure[Job]:
    """Wait until a job is completed, dead or cancelled; `ResultTimeout` if it takes longer."""
    patience = FOREVER if timeout is None else timeout
    span(patience, "timeout")
    pauses = waits(patience)
    while True:
        found = yield from transact(lambda sql: jobs.get(sql, tenant, [job_id]), write=False)
        job = found.get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        if job.state in {"completed", "dead", "cancelled"}:
            return job
        pause = next(pauses, None)
        if pause is None:
            raise ResultTimeout(job.id, state=job.state, timeout=patience)
        yield Pause(pause)


def enqueue_new(
    context: Context,
    new_job: NewJob,
    policy: DuplicatePolicy = enqueue.KEEP_HOLDER,
    *,
    api_key: str | None = None,
) -> Procedure[Enqueued]:
    """Enqueue one job, committed together with those of other callers.

    With the id of an API key, raises `ApiKeyEnded` if that is not valid any more.
    """
    if context.defaults.active:
        (new_job,) = context.defaults.filled((new_job,))
    # Prepared before the first try, so that every try stores the same id.
    item = prepare(new_job, context.tenant, now=context.now)
    if api_key is not None:
        item = replace(item, api_key=api_key)
    hooks = context.hooks
    if hooks.around_enqueue or hooks.carrier is not None:
        with hooks.enqueueing((item,)) as under_way:
            answer = yield from batch(enqueue_item(context, under_way.items[0], policy))
            under_way.answers = (answer,)
    else:
        answer = yield from batch(enqueue_item(context, item, policy))
        if hooks.listeners:
            hooks.tell_enqueued(item, answer)
    if answer.duplicate and context.borrowed is None:
        context.duplicate_log.note_jobs((item,), (answer,))
    set_results(answer, JobResults(context))
    return answer


def enqueue_kind(
    context: Context, kind: str, payload: Json, options: EnqueueOptions
) -> Procedure[Enqueued]:
    """Enqueue one job with the options of `enqueue`."""
    checks.options(options, EnqueueOptions.__optional_keys__)
    policy, rest = enqueue.KEEP_HOLDER, dict[str, Any](options)
    if not rest.keys().isdisjoint(CallOptions.__optional_keys__):
        policy = _pop_policy(rest)
    # The job gets its own dictionary: a rule for its key is the caller's code.
    return enqueue_new(context, NewJob(kind, {} if payload is EMPTY else payload, **rest), policy)


def _pop_policy(options: dict[str, Any]) -> DuplicatePolicy:
    """Remove the options that are about duplicates from those of the job."""
    names = CallOptions.__optional_keys__ & options.keys()
    return enqueue.policy(**{name: options.pop(name) for name in names})


def enqueue_item(
    context: Context, item: Prepared, policy: DuplicatePolicy
) -> Item[Prepared, Enqueued]:
    """An enqueue that shares a statement with others of the same policy, of any tenant.

    In a caller's transaction, a rollback takes the notes back, too.
    """
    request, publish = item.request, item.publish
    # On Citus a group has one shard, so that a node that is away fails no calls for other nodes.
    sql = context.runtime.store.database.sql
    shard = shard_of(request.id, sql.shards) if sql.distributed else 0
    if (publish is None and item.api_key is None) or context.borrowed is not None:
        notes = context.borrowed is not None
        many = partial(enqueue.enqueue, policy=policy, singly=True, notes=notes)
        return Item(many, item, ("enqueue", policy, shard), request.unique or request.id)
    key = request.id if publish is None else publish.key
    # A publish key mostly belongs to one caller; a unique key is more often held by others.
    many = partial(enqueue.publish, policy=policy)
    return Item(many, item, ("publish", policy, shard), request.unique or key)


def finding(
    context: Context, filters: FindOptions, *, limit: int, after: str | None, newest_first: bool
) -> Build[JobPage]:
    """The operation that finds a page of jobs by filter."""
    wanted, tenant = job_filter(filters), context.tenant
    checks.flag(newest_first, "newest_first")
    return lambda sql: jobs.find(
        sql, tenant, wanted, limit=limit, after=after, newest_first=newest_first
    )


def job_filter(filters: FindOptions) -> jobs.JobFilter:
    """Check a filter. An empty list of states is an error: it would match every job."""
    checks.options(filters, FindOptions.__optional_keys__)
    state = filters.get("state")
    if state is not None and not isinstance(state, str):
        words = checks.listed(state, "state", "words")
        if not words or not all(isinstance(word, str) for word in words):
            raise InvalidInput("state", f"must be a word or a list of words, got {words!r}")
        filters["state"] = words
    return jobs.job_filter(**filters)


def _cancelled(job_id: str, state: State | None) -> bool:
    if state is None:
        raise JobNotFound(job_id)
    if state is State.CANCELLED:
        return False
    if not allows(state, Event.CANCEL):
        raise WrongState(job_id, state=state.word, wanted="a queued or running job")
    return True
