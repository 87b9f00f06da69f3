"""`POST /v1/queues/{name}/jobs`: publish a job, once, however often the request is sent.

`POST /v1/queues/{name}/jobs/batch`: many jobs at once, all or nothing, an answer for each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.job import NewJob
from onefold.model.job_options import TAGS
from onefold.model.lifecycle import Retention
from onefold.model.queue import qualified
from onefold.model.timestamps import Iso
from onefold.model.wire import (
    Answer,
    Attempts,
    BadBody,
    Body,
    Moment,
    Priority,
    Seconds,
    camel,
    duration,
    optional_duration,
)
from onefold.operations.enqueue import policy
from onefold.server.request_context import Reply, Route
from onefold.server.routes.queues import BackoffBody, RetentionBody, backoff_of, retention_of
from onefold.server.simpleq import WORDS, Word, created_at, word_of

if TYPE_CHECKING:
    from onefold.calls.jobs import CallOptions
    from onefold.model.job import Enqueued, OnDuplicate, OnMismatch
    from onefold.model.queue import QueueConfiguration
    from onefold.operations.enqueue import DuplicatePolicy
    from onefold.server.request_context import RequestContext


SEPARATOR: Final = "\u241f"
"""Between the key of a batch and the place of an item. Neither a header nor a caller's own key has
it, so no publish is ever taken for an item of somebody's batch."""
CREATED: Final = 201
KNOWN: Final = 200


class JobBody(Body):
    """A job to be published. Only the payload has to be there."""

    payload: msgspec.Raw
    """Any JSON; the usual thing is an object. It is stored as the bytes that came."""
    idempotency_key: str | None = None
    """This publish, once, whatever becomes of the job."""
    idempotency_for: Seconds | None = None
    """How long the key is remembered; 24 hours unless told."""
    unique_key: str | None = None
    """Not twice at once: while a job holds this key, that job is the answer."""
    unique_while: Literal["queued", "active", "exists"] | None = None
    unique_for: Seconds | None = None
    across_kinds: bool = False
    delay: Seconds | None = None
    run_at: Moment | None = None
    priority: Priority = 0
    """Lower runs first."""
    kind: str | None = None
    """What to do; the queue's name unless told."""
    max_attempts: Attempts | None = None
    """The queue's own unless told; likewise the backoff and the retention."""
    backoff: BackoffBody | None = None
    retention: RetentionBody | None = None
    group_key: str | None = None
    expires_at: Moment | None = None
    timeout: Seconds | None = None
    """How long one attempt may take, for workers that pull."""
    tags: Annotated[tuple[str, ...], msgspec.Meta(max_length=TAGS)] = ()
    metadata: dict[str, Any] | None = None
    store_result: bool | None = None


class PublishBody(JobBody):
    """A job, and what is to be done about duplicates."""

    on_duplicate: Literal["keep", "raise", "replace", "rerun"] = "keep"
    on_mismatch: Literal["flag", "raise"] = "flag"
    max_wait: Seconds | None = None
    """With `replace`: how long a job may be put off by newcomers."""


class Published(Answer):
    """The job that stands for the request, new or not."""

    id: str
    status: Word
    created_at: Iso
    duplicate: bool
    """True where another publish has made the job."""
    mismatch: bool
    """True where the key is known with another request."""
    replaced: bool
    """True where the job has taken this request's payload over."""
    state: str | None
    """Our word for `status`; null where only the key remembers the job."""


async def publish(asking: RequestContext) -> Reply:
    """201 with a new job, 200 with the one that was there."""
    body: PublishBody = asking.body
    name = asking.path["name"]
    configuration = await asking.server.queues.get(asking.tenant, name)
    new_job = new_job_of(
        body,
        name=name,
        queue=qualified(asking.tenant, name),
        configuration=configuration,
        key=key_of(asking, body.idempotency_key),
        request_id=asking.request_id,
    )
    chosen = policy_of(body.on_duplicate, body.on_mismatch, body.max_wait)
    # As `aenqueue` does, which would take the job apart and put it together again.
    storing = asking.calls._enqueue_new(new_job, chosen)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    enqueued = await asking.server.conductor.arun(storing)
    if enqueued.inserted:
        return Reply(CREATED, published(enqueued))
    return Reply(KNOWN, await _known(asking, enqueued))


async def _known(asking: RequestContext, enqueued: Enqueued) -> Published:
    """A look at a running job tells whether it is its endpoint that works, or an ack is awaited."""
    said = published(enqueued)
    if enqueued.state != "running":
        return said
    job = await asking.calls.aget(enqueued.id)
    if job is None:
        return said
    state = job.status
    return msgspec.structs.replace(said, status=WORDS[state], state=state)


def published(enqueued: Enqueued) -> Published:
    """What is said of a publish, without another look at the job."""
    return Published(
        id=enqueued.id,
        status=word_of(enqueued.state),
        created_at=created_at(enqueued.id),
        duplicate=enqueued.duplicate,
        mismatch=enqueued.mismatch,
        replaced=enqueued.replaced,
        state=enqueued.state,
    )


def key_of(asking: RequestContext, said: str | None) -> str | None:
    """The key of the header is the body's; two that differ would be two promises."""
    if asking.key is not None and said is not None and asking.key != said:
        raise ConflictingOptions(
            "idempotency_key", "is another than the header Idempotency-Key: send one, or the same"
        )
    return asking.key if said is None else own_key(said)


def own_key(said: str) -> str:
    """A key that a caller has made."""
    if SEPARATOR in said:
        raise InvalidInput(
            "idempotency_key",
            f"must not contain {SEPARATOR!r}, which stands in the keys that items of a batch get",
        )
    return said


def new_job_of(
    body: JobBody,
    *,
    name: str,
    queue: str,
    configuration: QueueConfiguration,
    key: str | None,
    request_id: str,
) -> NewJob:
    """The job that a body asks for; where it says nothing, the queue does."""
    attempts = configuration.max_attempts if body.max_attempts is None else body.max_attempts
    new_job = NewJob(
        name if body.kind is None else body.kind,
        body.payload,
        queue=queue,
        priority=body.priority,
        run_at=body.run_at,
        delay=optional_duration(body.delay, "delay"),
        max_attempts=attempts,
        unique_key=body.unique_key,
        unique_while=body.unique_while,
        unique_for=optional_duration(body.unique_for, "unique_for"),
        across_kinds=body.across_kinds,
        idempotency_key=key,
        backoff=backoff_of(body.backoff) or configuration.backoff,
        retention=_retention(retention_of(body.retention), configuration.retention),
        expires_at=body.expires_at,
        timeout=optional_duration(body.timeout, "timeout"),
        group_key=body.group_key,
        tags=body.tags,
        metadata=body.metadata,
        store_result=body.store_result,
        request_id=request_id,
    )
    if body.idempotency_for is None:
        return new_job
    if key is None:
        raise ConflictingOptions("idempotency_for", "needs an idempotencyKey")
    keep = duration(body.idempotency_for, "idempotency_for")
    return msgspec.structs.replace(new_job, idempotency_for=keep)


def _retention(said: Retention | None, default: Retention | None) -> Retention | None:
    """For each outcome what the job says, or else its queue."""
    if said is None or default is None:
        return default if said is None else said
    return Retention(
        completed=default.completed if said.completed is None else said.completed,
        dead=default.dead if said.dead is None else said.dead,
        cancelled=default.cancelled if said.cancelled is None else said.cancelled,
    )


def call_options(
    on_duplicate: OnDuplicate, on_mismatch: OnMismatch, max_wait: float | None
) -> CallOptions:
    """What a call wants done about duplicates."""
    return {
        "on_duplicate": on_duplicate,
        "on_mismatch": on_mismatch,
        "max_wait": optional_duration(max_wait, "max_wait"),
    }


@lru_cache(maxsize=256)
def policy_of(
    on_duplicate: OnDuplicate, on_mismatch: OnMismatch, max_wait: float | None
) -> DuplicatePolicy:
    """The same, checked; few callers want anything but the default."""
    return policy(**call_options(on_duplicate, on_mismatch, max_wait))


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/queues/{name}/jobs",
        name="publishJob",
        summary="Publish a job",
        description=(
            "201 with a new job, 200 with the job that was made by an earlier publish with the same"
            " key. The header Idempotency-Key is the body's idempotencyKey."
        ),
        scope="publish",
        endpoint=publish,
        body=PublishBody,
        answers={CREATED: Published, KNOWN: Published},
        problems=(404, 409, 422),
        keyed="native",
    ),
)


MOST: Final = 10_000


class BatchBody(Body):
    """Jobs to be published together, and what is to be done about duplicates."""

    items: Annotated[list[JobBody], msgspec.Meta(max_length=MOST)]
    on_duplicate: Literal["keep", "raise", "replace", "rerun"] = "keep"
    on_mismatch: Literal["flag", "raise"] = "flag"
    max_wait: Seconds | None = None


class PublishedMany(Answer):
    """An answer for each item, in order."""

    items: list[Published]
    inserted: int
    """How many jobs are new."""
    skipped: int
    """How many stood already, or are duplicates of an earlier item."""


async def publish_batch(asking: RequestContext) -> Reply:
    """201 where any job is new, 200 where all of them stood already."""
    body: BatchBody = asking.body
    name = asking.path["name"]
    configuration = await asking.server.queues.get(asking.tenant, name)
    try:
        many = await asking.calls.aenqueue_many(
            _new_jobs(asking, body, name, configuration),
            **call_options(body.on_duplicate, body.on_mismatch, body.max_wait),
        )
    except InvalidInput as error:
        raise _placed(error) from error
    items = [published(enqueued) for enqueued in many.items]
    status = CREATED if many.inserted else KNOWN
    return Reply(status, PublishedMany(items=items, inserted=many.inserted, skipped=many.skipped))


def _new_jobs(
    asking: RequestContext, body: BatchBody, name: str, configuration: QueueConfiguration
) -> list[NewJob]:
    queue = qualified(asking.tenant, name)
    new_jobs: list[NewJob] = []
    for index, item in enumerate(body.items):
        try:
            new_job = new_job_of(
                item,
                name=name,
                queue=queue,
                configuration=configuration,
                key=_key(asking.key, index, item.idempotency_key),
                request_id=asking.request_id,
            )
        except InvalidInput as error:
            raise error.at(index) from error
        new_jobs.append(new_job)
    return new_jobs


def _key(header: str | None, index: int, said: str | None) -> str | None:
    """An item's own key; or one by which a retry of the whole batch finds the item again."""
    if said is not None:
        return own_key(said)
    return None if header is None else f"{header}{SEPARATOR}{index}"


def _placed(error: InvalidInput) -> InvalidInput:
    """The same refusal, by the place in the body."""
    if error.item is None:
        return error
    return BadBody(f"items[{error.item}].{camel(error.field)}", error.reason)


BATCH_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/queues/{name}/jobs/batch",
        name="publishJobs",
        summary="Publish many jobs",
        description=(
            f"Up to {MOST} jobs, all or nothing; the answers are in the order of the items. With"
            " the header Idempotency-Key, items that have no key of their own get one of it and"
            f" their place ({SEPARATOR} between them), so that the whole request can be sent again."
        ),
        scope="publish",
        endpoint=publish_batch,
        body=BatchBody,
        answers={CREATED: PublishedMany, KNOWN: PublishedMany},
        problems=(404, 409, 422),
        keyed="native",
    ),
)
