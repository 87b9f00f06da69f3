"""`POST /v1/queues/{name}/jobs`: publish a job, once, however often the request is sent."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.job import NewJob
from onefold.model.moment import Iso
from onefold.model.options import TAGS
from onefold.model.retention import Retention
from onefold.model.served_queue import qualified
from onefold.operations.enqueue import policy
from onefold.server.api.bounds import Attempts, Moment, Priority, Seconds
from onefold.server.api.job_words import WORDS, Word, created_at, word_of
from onefold.server.api.queue_words import (
    BackoffBody,
    RetentionBody,
    backoff_of,
    retention_of,
)
from onefold.server.asking import Said
from onefold.server.route import Route
from onefold.server.seconds import duration, optional_duration
from onefold.server.wire import Answer, Body

if TYPE_CHECKING:
    from onefold.calls.jobs import CallOptions
    from onefold.model.job import Enqueued, OnDuplicate, OnMismatch
    from onefold.model.served_queue import QueueConfiguration
    from onefold.operations.enqueue import Policy
    from onefold.server.asking import Asking

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


async def publish(asking: Asking) -> Said:
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
        return Said(CREATED, published(enqueued))
    return Said(KNOWN, await _known(asking, enqueued))


async def _known(asking: Asking, enqueued: Enqueued) -> Published:
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


def key_of(asking: Asking, said: str | None) -> str | None:
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
def policy_of(on_duplicate: OnDuplicate, on_mismatch: OnMismatch, max_wait: float | None) -> Policy:
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
