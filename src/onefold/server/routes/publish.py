"""Publish jobs: one, or many at once."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from onefold.app.jobs import enqueue_new
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.checks import qualified
from onefold.model.job import EnqueuedMany, JobTemplate, NewJob, OnDuplicate, OnMismatch
from onefold.model.timestamps import Duration, Moment
from onefold.model.wire import BadBody, Body, camel
from onefold.operations.enqueue import policy
from onefold.server.problems import ALREADY_ENQUEUED, QUEUE_NOT_FOUND
from onefold.server.request_context import Reply, RequestContext
from onefold.server.routing import RouteTable
from onefold.server.simpleq import SimpleqEnqueued, simpleq_enqueued
from onefold.web.problems import KEY_REUSED

if TYPE_CHECKING:
    from onefold.model.queue import QueueSettings


SEPARATOR: Final = "\u241f"
"""Separates the key of a batch from the index of an item. Keys of callers cannot contain it, so
they never match the key of an item.
"""
CREATED: Final = 201
KNOWN: Final = 200
MOST: Final = 10_000
"""Jobs of one batch."""

ROUTES: Final = RouteTable("publish")


class JobBody(JobTemplate, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A job to publish. Only the payload is required."""

    payload: msgspec.Raw
    """Any JSON, usually an object. It is stored as it was sent."""
    kind: str | None = None
    """The kind; by default the name of the queue."""
    idempotency_key: str | None = None
    """Publishes with the same key make one job, whatever happens to that job."""
    idempotency_for: Duration | None = None
    """How long the key is remembered; by default 24 hours."""
    run_at: Moment | None = None
    """When the job is due, instead of a delay."""
    expires_at: Moment | None = None
    """When the job is buried if it has not ended before."""


class PublishBody(JobBody, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A job, and what to do about duplicates."""

    on_duplicate: OnDuplicate = "keep"
    """What happens if a job holds the key: `keep` it, `raise` an error, `replace` its payload
    while it is queued, or `rerun` it.
    """
    on_mismatch: OnMismatch = "flag"
    """What happens if the key was used with another request: `flag` it in the response, or
    `raise` an error.
    """
    max_wait: Duration | None = None
    """With `replace`: how long newer publishes may delay the job."""


class BatchBody(Body):
    """Jobs to publish together, and what to do about duplicates."""

    items: Annotated[list[JobBody], msgspec.Meta(max_length=MOST)]
    """The jobs, at most 10,000."""
    on_duplicate: OnDuplicate = "keep"
    """As for one job, for every item."""
    on_mismatch: OnMismatch = "flag"
    """As for one job, for every item."""
    max_wait: Duration | None = None
    """With `replace`: how long newer publishes may delay a job."""


@ROUTES.add(
    "POST",
    "/v1/queues/{name}/jobs",
    scope="publish",
    body=PublishBody,
    answers={CREATED: SimpleqEnqueued, KNOWN: SimpleqEnqueued},
    problems=(QUEUE_NOT_FOUND, ALREADY_ENQUEUED, KEY_REUSED),
    keyed="native",
    confirms=True,
)
async def publish_job(request: RequestContext) -> Reply:
    """Publish a job.

    201 with a new job, 200 with the job of an earlier publish with the same key. The header
    Idempotency-Key is the body's idempotencyKey.
    """
    body: PublishBody = request.body
    name = request.path["name"]
    new_job = new_job_of(
        body,
        name=name,
        queue=qualified(request.tenant, name),
        settings=await request.server.queues.get(request.tenant, name),
        key=_key_of(request.key, body.idempotency_key),
        request_id=request.request_id,
    )
    chosen = policy_of(body.on_duplicate, body.on_mismatch, body.max_wait)
    # `aenqueue` does the same, but splits the job into options and builds it again.
    storing = enqueue_new(request.calls.context, new_job, chosen, api_key=request.unconfirmed)
    enqueued = await request.server.context.runtime.arun(storing)
    return Reply(CREATED if enqueued.inserted else KNOWN, simpleq_enqueued(enqueued))


def _key_of(header: str | None, given: str | None) -> str | None:
    """The idempotency key of the body or of the header."""
    if given is None:
        return header
    if header is not None and header != given:
        raise ConflictingOptions(
            "idempotency_key", "is another than the header Idempotency-Key: send one, or the same"
        )
    if SEPARATOR in given:
        raise InvalidInput(
            "idempotency_key", f"must not contain {SEPARATOR!r}: keys of batch items contain it"
        )
    return given


_OPTIONS: Final = JobTemplate.__struct_fields__
_options_of: Final = attrgetter(*_OPTIONS)
_NO_OPTIONS: Final = _options_of(JobTemplate())


def new_job_of(
    body: JobBody,
    *,
    name: str,
    queue: str,
    settings: QueueSettings,
    key: str | None,
    request_id: str,
) -> NewJob:
    """The job of a body. Without a value in the body, the setting of the queue applies."""
    given = _options_of(body)
    # For speed: most jobs have no options.
    options = {} if given == _NO_OPTIONS else dict(zip(_OPTIONS, given, strict=True))
    if body.max_attempts is None:
        options["max_attempts"] = settings.max_attempts
    if body.backoff is None:
        options["backoff"] = settings.backoff
    if body.retention is None:
        options["retention"] = settings.retention
    else:
        options["retention"] = body.retention.over(settings.retention)
    new_job = NewJob(
        name if body.kind is None else body.kind,
        body.payload,
        queue=queue,
        run_at=body.run_at,
        expires_at=body.expires_at,
        idempotency_key=key,
        request_id=request_id,
        **options,
    )
    if body.idempotency_for is None:
        return new_job
    if key is None:
        raise ConflictingOptions("idempotency_for", "needs an idempotencyKey")
    return msgspec.structs.replace(new_job, idempotency_for=body.idempotency_for)


policy_of: Final = lru_cache(maxsize=256)(policy)
"""The duplicate policy, cached: most publishes use the default."""


@ROUTES.add(
    "POST",
    "/v1/queues/{name}/jobs/batch",
    scope="publish",
    body=BatchBody,
    answers={CREATED: EnqueuedMany, KNOWN: EnqueuedMany},
    problems=(QUEUE_NOT_FOUND, ALREADY_ENQUEUED, KEY_REUSED),
    keyed="native",
)
async def publish_jobs(request: RequestContext) -> Reply:
    """Publish many jobs.

    Up to 10,000 jobs, all or nothing; the results are in the order of the items. 201 if any job is
    new. With the header Idempotency-Key, an item without its own key has the key of the header and
    its position, with \u241f between them. So the whole request can be sent again.
    """
    body: BatchBody = request.body
    name = request.path["name"]
    settings = await request.server.queues.get(request.tenant, name)
    try:
        new_jobs = _new_jobs(request, body, name, settings)
        many = await request.calls.aenqueue_many(
            new_jobs,
            on_duplicate=body.on_duplicate,
            on_mismatch=body.on_mismatch,
            max_wait=body.max_wait,
        )
    except InvalidInput as error:
        if error.item is None:
            raise
        raise BadBody(f"items[{error.item}].{camel(error.field)}", error.reason) from error
    return Reply(CREATED if many.inserted else KNOWN, many)


def _new_jobs(
    request: RequestContext, body: BatchBody, name: str, settings: QueueSettings
) -> list[NewJob]:
    queue = qualified(request.tenant, name)
    new_jobs: list[NewJob] = []
    for index, item in enumerate(body.items):
        # A retry of the whole batch finds each item by the header and the item's place.
        key = None if request.key is None else f"{request.key}{SEPARATOR}{index}"
        try:
            new_job = new_job_of(
                item,
                name=name,
                queue=queue,
                settings=settings,
                key=key if item.idempotency_key is None else _key_of(None, item.idempotency_key),
                request_id=request.request_id,
            )
        except InvalidInput as error:
            raise error.at(index) from error
        new_jobs.append(new_job)
    return new_jobs
