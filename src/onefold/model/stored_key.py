"""Stored keys for operators: lists of keys, and the holders of one key (`why`).

A holder shows what holds a key, since when, until when, and which duplicates it suppressed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.model.claim import TAKEOVERS, Holding, Takeover, decode_result
from onefold.model.job import JobState, UniqueWhile
from onefold.model.lifecycle import State
from onefold.model.new_job import SCOPES
from onefold.model.timestamps import Moment, from_micros
from onefold.model.unique import request_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime


KeyState: TypeAlias = Literal["held", "settled", "free", "unknown", "abandoned", "expired"]

KEY_STATES: Final[tuple[KeyState, ...]] = (
    "held", "settled", "free", "unknown", "abandoned", "expired",
)  # fmt: skip


class Duplicates(msgspec.Struct, frozen=True, rename="camel"):
    """The duplicates that a key has suppressed."""

    count: int
    """How many requests were suppressed."""
    first_at: Moment | None
    """When the first one was suppressed."""
    last_at: Moment | None
    """When the last one was suppressed."""
    recent: tuple[Suppressed, ...]
    """The last ones, newest first; limited in number."""


class Suppressed(msgspec.Struct, frozen=True, rename="camel"):
    """A request that stored no job, because its key was held."""

    at: Moment
    """When it was suppressed."""
    request_id: str | None
    """The id of the request, as in the log of the server."""


class StoredKey(msgspec.Struct, frozen=True, rename="camel"):
    """A key: what holds it, since when, and its outcome."""

    tenant: str
    """The tenant of the key; empty for the operator."""
    surface: str
    """`http`, `webhook`, `form`, `once`, `publish`, `lock`, or one of the application."""
    scope: str
    """Its owner or purpose: the principal of a request, the name of a `once`."""
    key: str
    """The key."""
    state: KeyState
    """`unknown`: its attempt has vanished, and it must not run again before an operator has
    decided. `abandoned`: its attempt has vanished, and the next attempt takes it over.
    `expired` counts as absent.
    """
    fence: int
    """The number of the attempt. It grows with every attempt at the key."""
    takeover: Takeover
    """What happens if its attempt vanishes: others `rerun`, `resume` or `refuse` the work."""
    since: Moment
    """When it was claimed."""
    lease_until: Moment | None
    """When the lease of its attempt ends."""
    settled_at: Moment | None
    """When its result was stored."""
    expires_at: Moment | None
    """When it is removed; None: only on request."""
    result: Any = None
    """The stored result; only if it was requested."""

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> StoredKey:
        """A row of find_keys."""
        tenant, surface, scope, key, state, fence, takeover, since = row[:8]
        lease_until, settled_at, expires_at, result = row[8:]
        return cls(
            tenant=tenant,
            surface=surface,
            scope=scope,
            key=key,
            state=state,
            fence=fence,
            takeover=TAKEOVERS[int(takeover)],
            since=from_micros(since),
            lease_until=_moment(lease_until),
            settled_at=_moment(settled_at),
            expires_at=_moment(expires_at),
            # The result of a publish key is the id of its job, which is not JSON.
            result=result if surface == "publish" else decode_result(result),
        )

    @property
    def place(self) -> tuple[str, str, str]:
        """Its place in a list."""
        return (self.surface, self.scope, self.key)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


class KeyPage(msgspec.Struct, frozen=True):
    """Some keys, and the cursor that continues after them."""

    keys: tuple[StoredKey, ...] = msgspec.field(name="items")
    """The keys of this page."""
    next: str | None = None
    """Pass it as `after=` for the next page; None on the last."""

    def __iter__(self) -> Iterator[StoredKey]:
        """The keys of this page."""
        return iter(self.keys)

    def __len__(self) -> int:
        """How many keys this page has."""
        return len(self.keys)


def cursor(place: tuple[str, str, str]) -> str:
    """The cursor that continues after a place."""
    return json.dumps(place, ensure_ascii=False)


def after(text: object) -> tuple[str, str, str]:
    """The place that a cursor continues after; without a cursor, the start."""
    if text is None:
        return ("", "", "")
    try:
        place = msgspec.json.decode(str(text), type=tuple[str, str, str])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        place = None
    # PostgreSQL accepts no NUL, so a key does not contain one either.
    if place is None or any("\0" in part for part in place):
        raise InvalidInput("after", f"must be the `next` of a page, got {text!r}")
    return place


JOB: Final = "job"
PUBLISH: Final = "publish"

HolderState: TypeAlias = Literal["held", "settled", "unknown", "abandoned"] | JobState
"""Of a job, its state; of a claim, the state of its attempt."""

_WHILE: Final[dict[int, UniqueWhile]] = {
    SCOPES["queued"]: "queued",
    SCOPES["active"]: "active",
    SCOPES["exists"]: "exists",
}
HELD: Final[dict[UniqueWhile, str]] = {
    "queued": "until a worker takes the job",
    "active": "until the job is completed, dead or cancelled",
    "exists": "until the job's record is deleted",
}
"""How long a job holds its key."""
NOTHING_SUPPRESSED: Final = Duplicates(count=0, first_at=None, last_at=None, recent=())


class HeldJob(msgspec.Struct, frozen=True, rename="camel"):
    """The job that holds a key."""

    id: str
    """The id of the job."""
    kind: str | None = None
    """None if the job was removed, and only its key is stored."""
    queue: str | None = None
    """The queue of the job."""
    state: JobState | None = None
    """The state of the job."""


class HolderRow(msgspec.Struct, frozen=True):
    """A row of find_key_holders, in the order of its columns."""

    surface: str
    scope: str
    state: int
    fence: int
    fingerprint: str | None
    created_at: int
    until: int | None
    """Of a job, the end of its window; of a claim, of its lease."""
    expires_at: int | None
    rule: int
    """Of a job, the states that hold the key; of a claim, its takeover."""
    job_id: str | None
    now: int

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> HolderRow:
        """From a row of the database."""
        return cls(*row)

    @property
    def is_job(self) -> bool:
        """True for a job that holds its unique key."""
        return self.surface == JOB

    def holds(self, job: JobState | None) -> bool:
        """False if it counts as absent, though it is still stored; `job` is its job's state."""
        expired = self.expires_at is not None and self.expires_at <= self.now
        if self.is_job:
            if expired and self.state == State.QUEUED:
                return False
            return self._by_state or (self.until is not None and self.until > self.now)
        if self.surface == PUBLISH:
            # Not before its job has ended.
            return not expired or job not in {None, "completed", "dead", "cancelled"}
        if self.state == Holding.FREE:
            return False
        return not (expired and self.state == Holding.SETTLED)

    @property
    def _by_state(self) -> bool:
        return bool(self.rule >> self.state & 1)

    @property
    def held_until(self) -> int | None:
        """When time alone frees it; None if only an event can."""
        if self.is_job:
            return None if self._by_state else self.until
        return self.expires_at if self.state == Holding.SETTLED else self.until

    def word(self, job: HeldJob | None) -> HolderState:
        """The name of its state; for a job that holds its key, the state of the job."""
        if self.is_job and job is not None and job.state is not None:
            return job.state
        if self.state == Holding.SETTLED:
            return "settled"
        if self.until is not None and self.until > self.now:
            return "held"
        return "unknown" if TAKEOVERS[self.rule] == "refuse" else "abandoned"


class KeyHolder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The holder of a key on one surface, in one scope."""

    surface: str
    """`job` for a unique key; `publish`, `http`, `webhook`, `form`, `once`, `lock`, or your own."""
    scope: str
    """Of a job's key its kind (empty: across kinds), of a publish key its queue; else the owner or
    the purpose of the key.
    """
    key: str
    """The key."""
    state: HolderState
    """`held`: an attempt is running. `settled`: it is done, and its result is returned again.
    `unknown`: the attempt has vanished, and it must not run again before an operator has
    decided. `abandoned`: the attempt has vanished, and the next one takes it over.
    """
    since: Moment
    """When it took the key."""
    until: Moment | None
    """When time frees it; of `held`, when its lease ends, and its takeover decides. None: never,
    or not without an event.
    """
    unique_while: UniqueWhile | None = None
    """Of a job: the states in which it holds its key; None if only a window holds it."""
    takeover: Takeover | None = None
    """Of a claim: what happens if its attempt vanishes."""
    fence: int
    """Of a job its last delivery, of a claim its attempt: the number grows with each."""
    fingerprint: str | None
    """Of the first request with the key."""
    matches: bool | None = None
    """Whether the given request is the same as that one; None if that is not known."""
    job: HeldJob | None = None
    """The job that holds the key, or that was published with it."""
    suppressed: Duplicates = NOTHING_SUPPRESSED
    """The suppressed duplicates: their count, the times of the first and the last, and the last
    ones.
    """


class Why(msgspec.Struct, frozen=True):
    """All holders of a key. Without one, the key is free on every surface."""

    key: str
    """The key."""
    holders: tuple[KeyHolder, ...]
    """What holds the key, one for each surface and scope."""

    def __iter__(self) -> Iterator[KeyHolder]:
        """The holders, by surface and scope."""
        return iter(self.holders)

    def __len__(self) -> int:
        """The number of holders, in all surfaces and scopes."""
        return len(self.holders)


class Question(msgspec.Struct, frozen=True):
    """The request to compare with, as far as it is known."""

    fingerprint: str | None = None
    payload: Any = msgspec.UNSET

    def matches(self, row: HolderRow, job: HeldJob | None) -> bool | None:
        """Whether it is the request that holds the key; None if that is not known."""
        stored = row.fingerprint
        if stored is None:
            return None
        if self.fingerprint is not None:
            return self.fingerprint == stored
        if self.payload is msgspec.UNSET or job is None or job.kind is None:
            return None
        parts = (job.kind,) if row.is_job else (job.kind, row.scope)
        return request_fingerprint(*parts, payload=self.payload) == stored


def holder(
    row: HolderRow, key: str, job: HeldJob | None, suppressed: Duplicates, question: Question
) -> KeyHolder:
    """The holder of a row, for readers."""
    until = row.held_until
    return KeyHolder(
        surface=row.surface,
        scope=row.scope,
        key=key,
        state=row.word(job),
        since=from_micros(row.created_at),
        until=None if until is None else from_micros(until),
        unique_while=_WHILE.get(row.rule) if row.is_job else None,
        takeover=None if row.is_job or row.surface == PUBLISH else TAKEOVERS[row.rule],
        fence=row.fence,
        fingerprint=row.fingerprint,
        matches=question.matches(row, job),
        job=job,
        suppressed=suppressed,
    )
