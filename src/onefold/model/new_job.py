"""From a `NewJob` to the row that is inserted: checks, keys, encoding. Pure.

All rules about the options of a job are here. A bad value is an `InvalidInput` with its field.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.claim import ClaimKey
from onefold.model.ids import (
    common_parts,
    fresh_ids,
    key_digest,
    length_prefixed,
    new_id,
    shard_of,
    with_hash,
)
from onefold.model.job import DAY, JobState, Json, NewJob
from onefold.model.job_options import encode_options
from onefold.model.json_text import read_payload, sorted_json
from onefold.model.timestamps import MICROSECOND, from_micros, span, to_micros
from onefold.model.unique import FINGERPRINT_DIGITS, Unique, payload_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

T = TypeVar("T")
Now: TypeAlias = int | Callable[[], int]
"""The time in microseconds, or a function that returns it: only a bucket or a `run_at` needs it."""

PAYLOAD_BYTES: Final = 1024 * 1024

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
    """For a successor: until when the job before it holds the key."""

    @property
    def unique(self) -> tuple[int, str, str, str] | None:
        """The key's values in the unique index; these tuples sort in lock order."""
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
    """One item of an enqueue: the job, its publish key, and an id for the duplicate log."""

    request: NewJobRow
    publish: Publish | None = None
    request_id: str | None = None
    state: JobState = "ready"
    """Of the job, if it is inserted."""
    api_key: str | None = None
    """The id of an API key that must still be valid when the job is stored."""


def prepare_all(
    jobs: Sequence[NewJob], tenant: str, *, now: Now, ids: Iterator[str] | None = None
) -> list[Prepared]:
    """Check and encode a batch; an error names the item.

    `now` decides the buckets of derived keys, and whether a job is scheduled or ready.
    """
    prepared: list[Prepared] = []
    ids = fresh_ids(len(jobs)) if ids is None else ids
    for item, job in enumerate(jobs):
        try:
            prepared.append(prepare(job, tenant, now=now, ids=ids))
        except InvalidInput as error:
            raise error.at(item) from None
    return prepared


PART = 250
"""Jobs of a part. The first part is half as long, since the database waits for it."""


class Parts:
    """A large batch in parts, in lock order. Each part is prepared when it is first needed.

    So the database stores one part while the next one is prepared. A retry gets the same rows.
    """

    def __init__(self, jobs: Sequence[NewJob], order: Sequence[int], tenant: str, now: Now) -> None:
        """Made by `in_parts`; `order` has the indexes of the jobs."""
        self._jobs = jobs
        self._order = order
        self._tenant = tenant
        self._now = now
        self._is_sorted = isinstance(order, range)
        # Made for all parts: ids without keys have one shard. They are in the order of the jobs, in
        # which the jobs of an ordered group run.
        self._ids = fresh_ids(len(jobs))
        self._ids_by_index = [] if self._is_sorted else list(self._ids)
        self._prepared: list[list[Prepared]] = []
        self._starts = self._cut()

    def _cut(self) -> list[int]:
        """Where the parts begin. Jobs with equal keys are in one part."""
        keys = [self._jobs[index].unique_key for index in self._order]
        starts, start = [0], PART // 2
        while start + PART // 2 < len(keys):
            if keys[start] is None or keys[start] != keys[start - 1]:
                starts.append(start)
                start += PART
            else:
                start += 1
        return starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> list[Prepared]:
        while len(self._prepared) <= index:
            self._prepare_next()
        return self._prepared[index]

    def _prepare_next(self) -> None:
        index = len(self._prepared)
        end = self._starts[index + 1] if index + 1 < len(self) else None
        places = self._order[self._starts[index] : end]
        wanted = itemgetter(*places)
        ids = self._ids if self._is_sorted else iter(wanted(self._ids_by_index))
        try:
            part = prepare_all(wanted(self._jobs), self._tenant, now=self._now, ids=ids)
        except InvalidInput as error:
            raise error.at(places[error.item or 0]) from None
        self._prepared.append(part)

    def in_given_order(self, parts: Iterable[Sequence[T]]) -> list[T]:
        """What belongs to the jobs, in the order in which they were given."""
        values = list(chain.from_iterable(parts))
        if self._is_sorted:
            return values
        places = dict(zip(self._order, values, strict=True))
        return [places[index] for index in range(len(values))]

    @property
    def items(self) -> list[Prepared]:
        """All jobs, prepared."""
        return self.in_given_order(self[index] for index in range(len(self)))


def in_parts(jobs: Sequence[NewJob], tenant: str, *, now: Now) -> Parts | None:
    """The parts of a large batch; None if it is small, or if its lock order is not yet known."""
    if len(jobs) < 2 * PART or not all(map(_is_simple, jobs)):
        return None
    keys: list[Any] = [job.unique_key for job in jobs]
    if keys.count(None) == len(keys):
        return Parts(jobs, range(len(jobs)), tenant, now)
    kinds = [(job.across_kinds, job.kind) for job in jobs]
    if kinds.count(kinds[0]) < len(kinds):
        return None
    try:
        order = sorted(range(len(jobs)), key=keys.__getitem__)
    except TypeError:  # some have no key, or a wrong one
        return None
    return Parts(jobs, order, tenant, now)


def _is_simple(job: object) -> bool:
    """Whether the unique key of a job is known before its payload is read, and is its only key."""
    return isinstance(job, NewJob) and job.idempotency_key is None and job.unique is None


def prepare(job: NewJob, tenant: str, *, now: Now, ids: Iterator[str] | None = None) -> Prepared:
    """Check and encode one job; `ids` are those of a batch."""
    if not isinstance(job, NewJob):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("job", f"must be a NewJob, got {job!r}")
    kind, queue = job.kind, job.queue
    try:
        shared = _checked(tenant, kind, queue, job.priority, job.max_attempts)
    except TypeError:  # not hashable, so not cached, and not valid either
        shared = _checked.__wrapped__(tenant, kind, queue, job.priority, job.max_attempts)
    payload, value = read_payload(job.payload)
    if len(payload) > PAYLOAD_BYTES // 4 and (size := len(payload.encode())) > PAYLOAD_BYTES:
        raise InvalidInput("payload", f"must have at most {PAYLOAD_BYTES} bytes, got {size}")
    job_id = new_id() if ids is None else next(ids)
    keys = _keys(job, payload, value, shared, now) if _has_keys(job) else _NO_KEYS
    if keys.digest:
        job_id = with_hash(job_id, keys.digest)

    # By position: names cost a bulk enqueue a tenth of its time.
    request = NewJobRow(
        job_id,
        0,
        tenant,
        queue,
        kind,
        job.priority,
        None if job.run_at is None else to_micros(job.run_at, "run_at"),
        0 if job.delay is None else _delay(job, job.delay),
        job.max_attempts,
        payload,
        keys.fingerprint,
        keys.unique_kind,
        keys.unique_key,
        keys.states,
        keys.unique_for,
        None if job.expires_at is None else to_micros(job.expires_at, "expires_at"),
        encode_options(job, exists=keys.states == SCOPES["exists"]) if _has_options(job) else None,
        None if job.group_key is None else checks.key(job.group_key, "group_key"),
    )
    request_id = None if job.request_id is None else checks.text(job.request_id, "request_id")
    # By the caller's clock: an insert returns no times.
    waits = request.delay > 0 or (request.run_at is not None and request.run_at > _read(now))
    return Prepared(request, keys.publish, request_id, "scheduled" if waits else "ready")


def _read(now: Now) -> int:
    return now() if callable(now) else now


class _Shared(msgspec.Struct, frozen=True, gc=False):
    """What most jobs of a large batch have in common."""

    tenant: str
    key_parts: bytes
    """What the digests of their unique keys begin with."""
    payload_parts: bytes
    """What their fingerprints begin with."""


@lru_cache(maxsize=1024, typed=True)
def _checked(
    tenant: str, kind: object, queue: object, priority: object, max_attempts: object
) -> _Shared:
    """Check what most jobs of a large batch have in common, once."""
    name = checks.name(kind, "kind")
    checks.queue(queue, "queue")
    _whole(priority, "priority", checks.PRIORITIES)
    checks.attempts(max_attempts)
    return _Shared(tenant, length_prefixed(tenant, name), length_prefixed(name))


def _has_options(job: NewJob) -> bool:
    """Whether an option of `job_options` is given; most jobs of a large batch have none."""
    return not (
        job.idempotency_key is None
        and job.backoff is None
        and job.retention is None
        and job.timeout is None
        and job.metadata is None
        and job.store_result is None
        and job.trace is None
        and job.tick is None
        and not job.tags
    )


class _Keys(msgspec.Struct, frozen=True, gc=False):
    """The keys of a job."""

    digest: str = ""
    """Of the key that decides the shard: the unique key, since the constraint must see all rows
    with that key, or the publish key. The id carries it."""
    fingerprint: str | None = None
    unique_kind: str | None = None
    unique_key: str | None = None
    states: int = 0
    unique_for: int | None = None
    publish: Publish | None = None


_NO_KEYS: Final = _Keys()


def _has_keys(job: NewJob) -> bool:
    """Whether an option about keys is given."""
    return not (
        job.unique_key is None
        and job.unique is None
        and job.idempotency_key is None
        and job.unique_while is None
        and job.unique_for is None
        and not job.across_kinds
    )


def _keys(job: NewJob, payload: str, value: Json, shared: _Shared, now: Now) -> _Keys:
    """Check the options about keys, and derive what follows from the payload."""
    hashed = sorted_json(payload, value)
    unique_key = job.unique_key
    if unique_key is not None:
        checks.key(unique_key, "unique_key")
    elif job.unique is not None:
        unique_key = _derived_key(job, job.unique, value, hashed, now)
    states, unique_for = SCOPES["active"], None
    if unique_key is None or job.unique_while is not None or job.unique_for is not None:
        states, unique_for = _scope(job, unique_key)
    publish = None if job.idempotency_key is None else _publish(job, shared.tenant, hashed)
    if unique_key is None:
        assert publish is not None  # an option without a key was rejected
        parts = common_parts(shared.tenant, "publish", job.queue)
        digest = key_digest(parts, publish.key.key.encode())
        return _Keys(digest, None, None, None, states, unique_for, publish)
    unique_kind, parts = job.kind, shared.key_parts
    if job.across_kinds:
        unique_kind, parts = "", common_parts(shared.tenant, "")
    digest = key_digest(parts, unique_key.encode())
    mark = key_digest(shared.payload_parts, hashed)[:FINGERPRINT_DIGITS]
    return _Keys(digest, mark, unique_kind, unique_key, states, unique_for, publish)


def _publish(job: NewJob, tenant: str, hashed: bytes) -> Publish:
    key = checks.key(job.idempotency_key, "idempotency_key")
    keep = DAY // MICROSECOND
    if job.idempotency_for is not DAY:
        keep = span(job.idempotency_for, "idempotency_for", least=MICROSECOND)
    fingerprint = payload_fingerprint(hashed, job.kind, job.queue)
    return Publish(ClaimKey(tenant, "publish", job.queue, key), fingerprint, keep)


def placed(items: Sequence[Prepared], shards: int) -> Sequence[Prepared]:
    """The same items on the shards that their ids name."""
    return [
        msgspec.structs.replace(
            item,
            request=msgspec.structs.replace(item.request, shard=shard_of(item.request.id, shards)),
        )
        for item in items
    ]


def _derived_key(job: NewJob, rule: object, value: Json, hashed: bytes, now: Now) -> str:
    if isinstance(rule, Unique):
        if rule.rule is None:
            moment = None
            if rule.bucket is not None:
                moment = from_micros(_read(now))
            return checks.key(rule.key_of_json(job.kind, hashed, now=moment), "unique")
        rule = rule.rule
    if not callable(rule):
        raise InvalidInput("unique", f"must be Unique or a function, got {rule!r}")
    return checks.key(rule(job.kind, value), "unique")


def _scope(job: NewJob, unique_key: str | None) -> tuple[int, int | None]:
    """The states that hold the key, as bits, and the window in microseconds."""
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
        # With a window alone, only time holds the key.
        return (0 if window is not None else SCOPES["active"]), window
    if word not in list(SCOPES):  # a list: the word may not be hashable
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
