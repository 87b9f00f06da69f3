"""Enqueue over HTTP: the bodies of publishes, and one publish key per call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from onefold.client.connection import JSON, Connection, decode, new_key
from onefold.client.requests import ClientRequest, encode_body, json_value, path, wire_body
from onefold.errors import InvalidInput, JobNotFound, OnefoldError
from onefold.jobs.enqueue_options import CallOptions, EnqueueOptions
from onefold.model import checks
from onefold.model.job import Enqueued, EnqueuedMany, Job, NewJob
from onefold.model.unique import Unique

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from onefold.model.job import Json
    from onefold.runtime import Procedure

MOST: Final = 10_000
"""Jobs in one request."""
MOST_BYTES: Final = 3 * 1024 * 1024
"""Bytes of the items of one request; the server accepts a body of 4 MiB."""

NOT_IN_BODY: Final = frozenset(
    {"kind", "payload", "queue", "unique", "idempotency_key", "request_id"}
)
"""Fields of a `NewJob` that are in the path or in a header, or that are written separately."""


class BatchJob(NamedTuple):
    """One job of `enqueue_many`."""

    position: int
    """In the call, from 0."""
    body: msgspec.Raw
    is_plain: bool
    """True without a key of its own: only a try of this call can have stored it before."""


def get_job(connection: Connection, job_id: str) -> Procedure[Job | None]:
    """A job, or None."""
    try:
        response = yield from connection.get(path("jobs", job_id))
    except JobNotFound:
        return None
    return decode(response, Job)


def enqueue(
    connection: Connection, kind: str, payload: Json, options: EnqueueOptions
) -> Procedure[Enqueued[Any]]:
    """Publish one job. Repetitions with its key return the same job."""
    checks.options(options, EnqueueOptions.__optional_keys__)
    given: dict[str, Any] = dict(options)
    call = {name: given.pop(name) for name in CallOptions.__optional_keys__ if name in given}
    new_job = NewJob(kind, payload, **given)
    key = new_key() if new_job.idempotency_key is None else new_job.idempotency_key
    body = {**_job_body(new_job, given), **wire_body(call), "idempotencyKey": key}
    # The key is in the body: there it may be longer than in a header, and have any characters.
    headers = dict(JSON)
    if new_job.request_id is not None:
        headers["X-Request-Id"] = checks.text(new_job.request_id, "request_id")
    response = yield from connection.request(
        ClientRequest(
            method="POST",
            path=path("queues", new_job.queue, "jobs"),
            body=encode_body(body),
            headers=headers,
        )
    )
    enqueued: Enqueued[Any] = decode(response, Enqueued)
    if new_job.idempotency_key is None and enqueued.duplicate and response.tries > 1:
        is_ours = "uniqueKey" not in body or (yield from _has_key(connection, enqueued.id, key))
        return msgspec.structs.replace(enqueued, duplicate=not is_ours)
    return enqueued


def _has_key(connection: Connection, job_id: str, key: str) -> Procedure[bool]:
    """Whether an earlier try of this call stored the job, or met the holder of its unique key."""
    try:
        job = yield from get_job(connection, job_id)
    except OnefoldError:
        return False
    return job is not None and job.idempotency_key == key


def enqueue_many(
    connection: Connection, new_jobs: Sequence[NewJob], options: CallOptions
) -> Procedure[EnqueuedMany[Any]]:
    """Publish many jobs: requests of one queue each, each all or nothing."""
    checks.options(options, CallOptions.__optional_keys__)
    listed = checks.listed(new_jobs, "new_jobs", "NewJob")
    found: dict[int, Enqueued[Any]] = {}
    for batch_path, items in _by_queue(listed).items():
        for chunk in _chunks(items):
            found |= yield from _publish(connection, batch_path, chunk, wire_body(options))
    return EnqueuedMany.of([found[index] for index in range(len(listed))])


def _publish(
    connection: Connection, batch_path: str, chunk: Sequence[BatchJob], call: Mapping[str, Any]
) -> Procedure[dict[int, Enqueued[Any]]]:
    body = {**call, "items": [item.body for item in chunk]}
    try:
        # The server derives the keys of items without one from the key of the request.
        response = yield from connection.post(batch_path, body)
    except OnefoldError as error:
        # The server counts within the request, the caller within the call.
        item = getattr(error, "item", None)
        if isinstance(item, int) and 0 <= item < len(chunk):
            error.item = chunk[item].position  # type: ignore[attr-defined] # it has one
        raise
    many: EnqueuedMany[Any] = decode(response, EnqueuedMany)
    return {
        item.position: msgspec.structs.replace(enqueued, duplicate=False)
        if response.tries > 1 and item.is_plain
        else enqueued
        for item, enqueued in zip(chunk, many.items, strict=True)
    }


def _by_queue(listed: Sequence[Any]) -> dict[str, list[BatchJob]]:
    """The items of each queue, encoded, by the path of its batches."""
    queues: dict[str, list[BatchJob]] = {}
    for index, new_job in enumerate(listed):
        if not isinstance(new_job, NewJob):
            raise InvalidInput("job", f"must be a NewJob, got {new_job!r}", item=index)
        if new_job.request_id is not None:
            reason = "belongs to a whole request, not to one item"
            raise InvalidInput("request_id", reason, item=index)
        try:
            batch_path = path("queues", new_job.queue, "jobs", "batch")
            body = _job_body(new_job)
            is_plain = new_job.idempotency_key is None and "uniqueKey" not in body
            if new_job.idempotency_key is not None:
                body["idempotencyKey"] = new_job.idempotency_key
            text = msgspec.Raw(encode_body(body))
        except InvalidInput as error:
            raise error.at(index) from None
        queues.setdefault(batch_path, []).append(BatchJob(index, text, is_plain))
    return queues


def _chunks(items: Sequence[BatchJob]) -> Iterator[list[BatchJob]]:
    """Items that fit into one request."""
    chunk: list[BatchJob] = []
    size = 0
    for item in items:
        length = len(item.body) + 1
        if chunk and (len(chunk) == MOST or size + length > MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk


def _job_body(new_job: NewJob, given: Collection[str] | None = None) -> dict[str, Any]:
    """One job for the server. The queue sets the options that were not given.

    Without `given`, an option that has its default counts as not given.
    """
    for field in ("tick", "trace"):
        if getattr(new_job, field) is not None:
            raise InvalidInput(field, "cannot be set over HTTP")
    values = msgspec.structs.asdict(new_job)
    if given is None:
        given = {name for name, value in values.items() if value != _DEFAULTS[name]}
    members = {name: values[name] for name in values if name in given and name not in NOT_IN_BODY}
    if new_job.unique_key is None and new_job.unique is not None:
        members["unique_key"] = _derived_key(new_job)
    payload = json_value(new_job.payload, "payload")
    return {"kind": new_job.kind, "payload": payload, **wire_body(members)}


def _derived_key(new_job: NewJob) -> str:
    """The unique key of a rule. The server receives keys only."""
    rule = new_job.unique
    if isinstance(rule, Unique):
        return rule.key(new_job.kind, new_job.payload)
    if not callable(rule):
        raise InvalidInput("unique", f"must be Unique or a function, got {rule!r}")
    return rule(new_job.kind, new_job.payload)


_DEFAULTS: Final[Mapping[str, Any]] = msgspec.structs.asdict(NewJob("kind"))
