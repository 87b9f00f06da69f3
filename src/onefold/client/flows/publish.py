"""Enqueue, over HTTP: one publish key per logical call, made above its tries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from onefold.calls.jobs import CallOptions, EnqueueOptions
from onefold.client import wire
from onefold.client.flow import JSON, new_key, place, post
from onefold.client.flows.jobs import look
from onefold.client.jobs import state_of
from onefold.errors import InvalidInput, OnefoldError
from onefold.model import checks
from onefold.model.job import Enqueued, EnqueuedMany, NewJob
from onefold.model.json_text import encode_payload
from onefold.model.unique import Unique

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onefold.client.flow import Ask, Flow
    from onefold.model.job import Json

MOST: Final = 10_000
"""Jobs in one request."""
MOST_BYTES: Final = 3 * 1024 * 1024
"""Of the items of one request: the server takes a body of 4 MiB."""

HERE: Final = frozenset({"kind", "payload", "queue", "unique", "idempotency_key", "request_id"})
"""What is not sent as it stands: it is in the path, in the key, or in a header."""

DURATIONS: Final = frozenset({"delay", "unique_for", "idempotency_for", "timeout", "max_wait"})
MOMENTS: Final = frozenset({"run_at", "expires_at"})


class Item(NamedTuple):
    """One job of a call."""

    place: int
    """In the call."""
    text: msgspec.Raw
    is_plain: bool
    """True where it has no key but the one that we make: only a try of ours can have used that."""


class Told(wire.Said, frozen=True, kw_only=True):
    """What the server answers for one job."""

    id: str
    duplicate: bool = False
    state: str | None = "queued"
    mismatch: bool = False
    replaced: bool = False

    def enqueued(self, *, duplicate: bool | None = None) -> Enqueued[Any]:
        """As an in-process enqueue answers."""
        return Enqueued(
            self.id,
            duplicate=self.duplicate if duplicate is None else duplicate,
            state=None if self.state is None else state_of(self.state),
            mismatch=self.mismatch,
            replaced=self.replaced,
        )


class ToldMany(wire.Said, frozen=True, kw_only=True):
    """What the server answers for many."""

    items: tuple[Told, ...]


def enqueue(ask: Ask, kind: str, payload: Json, options: EnqueueOptions) -> Flow[Enqueued[Any]]:
    """Publish one job. A retry of it, ours or anybody's, comes to the same job."""
    checks.options(options, EnqueueOptions.__optional_keys__)
    rest: dict[str, Any] = dict(options)
    call = {name: rest.pop(name) for name in CallOptions.__optional_keys__ if name in rest}
    new_job = NewJob(kind, payload, **rest)
    is_ours = new_job.idempotency_key is None
    key = new_key() if new_job.idempotency_key is None else new_job.idempotency_key
    body = {**_item(new_job, said_by=rest), **_call(call), "idempotencyKey": key}
    request = post(place("queues", checks.name(new_job.queue, "queue"), "jobs"), body)
    reply = yield from ask(msgspec.structs.replace(request, headers=_headers(new_job)))
    told = wire.read(reply, Told)
    if is_ours and told.duplicate and reply.tries > 1:
        made = yield from _is_made_by(ask, told.id, key, keyed="uniqueKey" in body)
        return told.enqueued(duplicate=not made)
    return told.enqueued()


def _headers(new_job: NewJob) -> dict[str, str]:
    """No key among them: that of a body may be longer, and of any characters."""
    headers = {"Content-Type": JSON}
    if new_job.request_id is not None:
        headers["X-Request-Id"] = checks.text(new_job.request_id, "request_id")
    return headers


def _is_made_by(ask: Ask, job_id: str, key: str, *, keyed: bool) -> Flow[bool]:
    """Whether a try of this call made the job, whose answer was lost.

    A key of ours is known for no other reason than an earlier try. That one may still have met the
    holder of a unique key.
    """
    if not keyed:
        return True
    try:
        job = yield from look(ask, job_id)
    except OnefoldError:
        return False
    return job is not None and job.idempotency_key == key


def enqueue_many(
    ask: Ask, new_jobs: Sequence[NewJob], options: CallOptions
) -> Flow[EnqueuedMany[Any]]:
    """Publish many: whole requests of one queue each, all or nothing per request."""
    checks.options(options, CallOptions.__optional_keys__)
    listed = checks.listed(new_jobs, "new_jobs", "NewJob")
    answers: dict[int, Enqueued[Any]] = {}
    for queue, items in _by_queue(listed).items():
        for chunk in _chunks(items):
            told = yield from _publish(ask, queue, chunk, _call(dict(options)))
            answers.update(told)
    return EnqueuedMany([answers[index] for index in range(len(listed))])


def _publish(
    ask: Ask, queue: str, chunk: Sequence[Item], call: Mapping[str, Any]
) -> Flow[dict[int, Enqueued[Any]]]:
    body = {**call, "items": [item.text for item in chunk]}
    try:
        # Items without a key of their own have one of this request's key.
        reply = yield from ask(post(place("queues", queue, "jobs", "batch"), body))
    except OnefoldError as error:
        _name_item(error, [item.place for item in chunk])
        raise
    told = wire.read(reply, ToldMany)
    return {
        item.place: one.enqueued(duplicate=False if reply.tries > 1 and item.is_plain else None)
        for item, one in zip(chunk, told.items, strict=True)
    }


def _name_item(error: OnefoldError, indexes: Sequence[int]) -> None:
    """An error names an item of its request; the caller knows it by its place in the call."""
    item = getattr(error, "item", None)
    if isinstance(item, int) and 0 <= item < len(indexes):
        error.item = indexes[item]  # type: ignore[attr-defined] # it has one


def _by_queue(listed: Sequence[Any]) -> dict[str, list[Item]]:
    """The items of each queue, encoded, with their places in the call."""
    queues: dict[str, list[Item]] = {}
    for index, new_job in enumerate(listed):
        if not isinstance(new_job, NewJob):
            raise InvalidInput("job", f"must be a NewJob, got {new_job!r}", item=index)
        if new_job.request_id is not None:
            reason = "is one for a whole request, and not an item's"
            raise InvalidInput("request_id", reason, item=index)
        try:
            queue, members = checks.name(new_job.queue, "queue"), _item(new_job)
        except InvalidInput as error:
            raise error.at(index) from None
        is_plain = new_job.idempotency_key is None and "uniqueKey" not in members
        if new_job.idempotency_key is not None:
            members["idempotencyKey"] = new_job.idempotency_key
        text = msgspec.Raw(msgspec.json.encode(members))
        queues.setdefault(queue, []).append(Item(index, text, is_plain))
    return queues


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """As many as fit into one request."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        length = len(item.text) + 1
        if chunk and (len(chunk) == MOST or size + length > MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += length
    if chunk:
        yield chunk


def _item(new_job: NewJob, *, said_by: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One job as the server takes it; what nobody said is the queue's to say.

    A `NewJob` cannot tell whether a default was said, so it was not.
    """
    checks.name(new_job.kind, "kind")
    _check_sayable(new_job)
    members: dict[str, Any] = {
        "kind": new_job.kind,
        "payload": msgspec.Raw(encode_payload(new_job.payload).encode()),
    }
    for name in NewJob.__struct_fields__:
        value = getattr(new_job, name)
        is_said = value != _DEFAULTS[name] if said_by is None else name in said_by
        if is_said and name not in HERE:
            members[name] = _value(name, value)
    if new_job.unique_key is None and new_job.unique is not None:
        members["unique_key"] = _derived(new_job)
    return wire.said(members)


def _call(options: Mapping[str, Any]) -> dict[str, Any]:
    return wire.said({name: _value(name, value) for name, value in options.items()})


def _value(name: str, value: Any) -> Any:
    if name in DURATIONS:
        return wire.seconds(value, name)
    if name in MOMENTS:
        return wire.iso(value, name)
    if name == "backoff":
        return wire.backoff(value)
    if name == "retention":
        return wire.retention(value)
    if name == "metadata" and value is not None:
        return msgspec.Raw(encode_payload(value).encode())
    return checks.listed(value, "tags", "text") if name == "tags" else value


def _check_sayable(new_job: NewJob) -> None:
    for field in ("tick", "trace"):
        if getattr(new_job, field) is not None:
            raise InvalidInput(field, "cannot be asked for over HTTP")


def _derived(new_job: NewJob) -> str:
    """The key of a rule, computed here: the server only ever sees keys."""
    rule = new_job.unique
    if isinstance(rule, Unique):
        return checks.key(rule.key(new_job.kind, new_job.payload), "unique")
    if not callable(rule):
        raise InvalidInput("unique", f"must be Unique or a function, got {rule!r}")
    return checks.key(rule(new_job.kind, new_job.payload), "unique")


_DEFAULTS: Final[Mapping[str, Any]] = {
    name: getattr(NewJob("kind"), name) for name in NewJob.__struct_fields__
}
