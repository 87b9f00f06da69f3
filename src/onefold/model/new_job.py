"""A `NewJob` made ready to be stored: checked, keyed, encoded. Pure; nothing is stored yet.

Every rule about what may be asked for is here and nowhere else. A bad value is an `InvalidInput`
that names the field.
"""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.claim import ClaimKey
from onefold.model.ids import fresh_ids, hash12, new_id, shard_of
from onefold.model.job import NewJob
from onefold.model.job_options import encode_options, has_options
from onefold.model.json_text import encode_payload
from onefold.model.timestamps import from_micros, span, to_micros
from onefold.model.unique import Unique, request_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onefold.model.job import Json

PAYLOAD_BYTES: Final = 1024 * 1024
ATTEMPTS: Final = range(1, 101)
PRIORITIES: Final = range(-32768, 32768)

# The states in which a key is held, as bits of State: the index tests one of them.
SCOPES: Final = {"queued": 0b00001, "active": 0b00011, "exists": 0b11111}


class NewJobRow(msgspec.Struct, frozen=True, gc=False):
    """What is stored for a new job. The fields are in the order of INSERT_COLUMNS."""

    id: str
    shard: int
    tenant: str
    queue: str
    kind: str
    priority: int
    run_at: int | None
    delay: int
    max_attempts: int
    payload: str
    fingerprint: str | None
    unique_kind: str | None
    unique_key: str | None
    unique_states: int
    unique_for: int | None
    expires_at: int | None
    options: str | None
    group_key: str | None = None
    unique_until: int | None = None
    """Of a successor: how long the key was promised by the job that it follows."""

    @property
    def row(self) -> tuple[Any, ...]:
        """The values in the order of INSERT_COLUMNS."""
        return msgspec.structs.astuple(self)

    @property
    def unique(self) -> tuple[int, str, str, str] | None:
        """The key's place in the unique index; tuples of them sort in lock order."""
        if self.unique_key is None or self.unique_kind is None:
            return None
        return (self.shard, self.tenant, self.unique_kind, self.unique_key)


INSERT_COLUMNS: Final = NewJobRow.__struct_fields__


class Publish(msgspec.Struct, frozen=True, gc=False):
    """A publish key to be claimed for a request."""

    key: ClaimKey
    fingerprint: str
    keep: int
    """How long the key is remembered, in microseconds."""


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """One item of an enqueue: the job, its publish key, and what to log of a duplicate."""

    request: NewJobRow
    publish: Publish | None = None
    request_id: str | None = None


def prepare_all(jobs: Sequence[NewJob], tenant: str, *, now: int) -> list[Prepared]:
    """Check and encode a whole batch; the error names the item that cannot be accepted.

    `now` decides the buckets of derived keys, and nothing that is compared across machines.
    """
    prepared: list[Prepared] = []
    ids = fresh_ids()
    for item, job in enumerate(jobs):
        try:
            prepared.append(prepare(job, tenant, now=now, ids=ids))
        except InvalidInput as error:
            raise error.at(item) from None
    return prepared


def prepare(job: NewJob, tenant: str, *, now: int, ids: Iterator[str] | None = None) -> Prepared:
    """Check and encode one job; `ids` are for those of a batch that have no key."""
    if not isinstance(job, NewJob):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("job", f"must be a NewJob, got {job!r}")
    kind, queue = job.kind, job.queue
    try:
        _check(kind, queue, job.priority, job.max_attempts)
    except TypeError:  # something that cannot be remembered, and that will not do either
        _check.__wrapped__(kind, queue, job.priority, job.max_attempts)
    payload = _payload(job.payload)
    unique_key = unique_kind = unique_for = publish_key = None
    states = 0
    if _wants_a_key(job):
        unique_key = _unique_key(job, kind, now)
        unique_kind = None if unique_key is None else "" if job.across_kinds else kind
        states, unique_for = _scope(job, unique_key)
        publish_key = _publish_key(job, tenant, queue)

    # By position: names cost a bulk enqueue a tenth of its time.
    request = NewJobRow(
        _new_id(tenant, unique_kind, unique_key, publish_key, ids),
        0,
        tenant,
        queue,
        kind,
        job.priority,
        None if job.run_at is None else to_micros(job.run_at, "run_at"),
        0 if job.delay is None else _delay(job, job.delay),
        job.max_attempts,
        payload,
        None if unique_key is None else request_fingerprint(kind, payload=job.payload),
        unique_kind,
        unique_key,
        states,
        unique_for,
        None if job.expires_at is None else to_micros(job.expires_at, "expires_at"),
        encode_options(job, exists=states == SCOPES["exists"]) if has_options(job) else None,
        None if job.group_key is None else checks.key(job.group_key, "group_key"),
    )
    if publish_key is None and job.request_id is None:
        return Prepared(request)
    return Prepared(request, _publish(job, request, publish_key), _request_id(job.request_id))


@lru_cache(maxsize=1024, typed=True)
def _check(kind: object, queue: object, priority: object, max_attempts: object) -> None:
    """What the jobs of a large batch mostly have in common, checked once."""
    checks.name(kind, "kind")
    checks.queue(queue, "queue")
    _whole(priority, "priority", PRIORITIES)
    attempts(max_attempts)


def _wants_a_key(job: NewJob) -> bool:
    """Whether anything is said about keys; most jobs of a large batch say nothing."""
    return not (
        job.unique_key is None
        and job.unique is None
        and job.idempotency_key is None
        and job.unique_while is None
        and job.unique_for is None
        and not job.across_kinds
    )


def placed(items: Sequence[Prepared], shards: int) -> Sequence[Prepared]:
    """The same items on the shards that their ids name."""
    if shards == 1:
        return items
    return [
        msgspec.structs.replace(
            item,
            request=msgspec.structs.replace(item.request, shard=shard_of(item.request.id, shards)),
        )
        for item in items
    ]


def _new_id(
    tenant: str,
    unique_kind: str | None,
    unique_key: str | None,
    publish_key: ClaimKey | None,
    ids: Iterator[str] | None,
) -> str:
    """The id carries the hash that decides its shard.

    The unique key's, since that constraint must see all its rivals; else the publish key's; else a
    random one.
    """
    if unique_kind is not None and unique_key is not None:
        return new_id(hash12(tenant, unique_kind, unique_key))
    if publish_key is not None:
        return new_id(publish_key.hash)
    return new_id() if ids is None else next(ids)


def _payload(payload: Json) -> str:
    text = encode_payload(payload)
    if len(text) > PAYLOAD_BYTES // 4 and (size := len(text.encode())) > PAYLOAD_BYTES:
        raise InvalidInput("payload", f"must have at most {PAYLOAD_BYTES} bytes, got {size}")
    return text


def _unique_key(job: NewJob, kind: str, now: int) -> str | None:
    if job.unique_key is not None:
        return checks.key(job.unique_key, "unique_key")
    if job.unique is None:
        return None
    if isinstance(job.unique, Unique):
        return checks.key(job.unique.key(kind, job.payload, now=from_micros(now)), "unique")
    if not callable(job.unique):
        raise InvalidInput("unique", f"must be Unique or a function, got {job.unique!r}")
    return checks.key(job.unique(kind, job.payload), "unique")


def _scope(job: NewJob, unique_key: str | None) -> tuple[int, int | None]:
    """The mask of states that hold the key, and the window in microseconds."""
    if unique_key is None:
        for field in ("unique_while", "unique_for"):
            if getattr(job, field) is not None:
                raise ConflictingOptions(field, "needs a unique_key (or unique)")
        if job.across_kinds:
            raise ConflictingOptions("across_kinds", "needs a unique_key (or unique)")
        return 0, None
    window = None
    if job.unique_for is not None:
        window = span(job.unique_for, "unique_for", least=timedelta(microseconds=1))
    word = job.unique_while
    if word is None:
        # A window alone holds by time and by nothing else.
        return (0 if window is not None else SCOPES["active"]), window
    if word not in list(SCOPES):  # a list: an unhashable word must be refused, not crash
        raise InvalidInput("unique_while", f"must be queued, active or exists, got {word!r}")
    return SCOPES[word], window


def _delay(job: NewJob, delay: timedelta) -> int:
    if job.run_at is not None:
        raise ConflictingOptions("delay", "cannot be given together with run_at")
    return span(delay, "delay")


def _whole(value: object, field: str, allowed: range) -> int:
    if type(value) is not int or value not in allowed:
        raise InvalidInput(
            field, f"must be a whole number from {allowed[0]} to {allowed[-1]}, got {value!r}"
        )
    return value


def attempts(value: object) -> int:
    """A number of attempts."""
    if type(value) is not int or value not in ATTEMPTS:
        raise InvalidInput(
            "max_attempts",
            f"must be a whole number from {ATTEMPTS[0]} to {ATTEMPTS[-1]}, got {value!r}. The first"
            " attempt counts: 1 means no retry",
        )
    return value


def _publish_key(job: NewJob, tenant: str, queue: str) -> ClaimKey | None:
    if job.idempotency_key is None:
        return None
    return ClaimKey(tenant, "publish", queue, checks.key(job.idempotency_key, "idempotency_key"))


def _publish(job: NewJob, request: NewJobRow, key: ClaimKey | None) -> Publish | None:
    if key is None:
        return None
    return Publish(
        key,
        request_fingerprint(request.kind, request.queue, payload=job.payload),
        span(job.idempotency_for, "idempotency_for", least=timedelta(microseconds=1)),
    )


def _request_id(value: object) -> str | None:
    return None if value is None else checks.text(value, "request_id")
