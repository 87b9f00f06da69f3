"""A stored key, as its operator sees it.

Why was I deduplicated? Who has a key, since when, until when, and whom it has kept away.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.model.claim import TAKEOVERS, Holding, Takeover, decode_result
from onefold.model.job import STATE_WORDS, Duplicates, StateWord, UniqueWhile
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


class StoredKey(msgspec.Struct, frozen=True, rename="camel"):
    """A key, who has it and since when, and what became of it."""

    tenant: str
    surface: str
    """`http`, `webhook`, `form`, `once`, `publish`, `lock`, or one of the application's own."""
    scope: str
    """Whose it is, or what for: the principal of a request, the name of a `once`."""
    key: str
    state: KeyState
    """`unknown`: its attempt has vanished, and nobody may run it before somebody has looked.
    `abandoned`: the same, and the next attempt takes it over. `expired` counts as absent."""
    fence: int
    takeover: Takeover
    since: Moment
    """When it was claimed."""
    lease_until: Moment | None
    settled_at: Moment | None
    expires_at: Moment | None
    """When it is forgotten; None: not by itself."""
    result: Any = None
    """What is stored with it; only where it was asked for."""

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
            # The result of a publish key is the id of its job, which is no JSON.
            result=result if surface == "publish" else decode_result(result),
        )

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it is in a list."""
        return (self.surface, self.scope, self.key)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


class KeyPage(msgspec.Struct, frozen=True):
    """Some keys, and the cursor that continues after them."""

    keys: tuple[StoredKey, ...] = msgspec.field(name="items")
    next: str | None = None
    """Give it as `after=` for the next page; None on the last."""

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
    """The place that a cursor continues after; the very beginning without one."""
    if text is None:
        return ("", "", "")
    try:
        place = msgspec.json.decode(str(text), type=tuple[str, str, str])
    except msgspec.MsgspecError:
        place = None
    # PostgreSQL takes no NUL, so there is none in a key either.
    if place is None or any("\0" in part for part in place):
        raise InvalidInput("after", f"must be the `next` of a page, got {text!r}")
    return place


JOB: Final = "job"
PUBLISH: Final = "publish"

HolderState: TypeAlias = Literal["held", "settled", "unknown", "abandoned"] | StateWord
"""Of a job, its own; of a claim, what is known of its attempt."""

_WHILE: Final[dict[int, UniqueWhile]] = {
    SCOPES["queued"]: "queued",
    SCOPES["active"]: "active",
    SCOPES["exists"]: "exists",
}
NOTHING_SUPPRESSED: Final = Duplicates(count=0, first_at=None, last_at=None, recent=())


class HeldJob(msgspec.Struct, frozen=True, rename="camel"):
    """The job that stands for a key."""

    id: str
    kind: str | None = None
    """None where the job is gone, and only the key remembers it."""
    queue: str | None = None
    state: StateWord | None = None


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
        """From the database."""
        return cls(*row)

    @property
    def is_job(self) -> bool:
        """True of a job that holds its unique key."""
        return self.surface == JOB

    def holds(self, job: StateWord | None) -> bool:
        """False of what counts as absent, though it is still there; `job` is its job's state."""
        expired = self.expires_at is not None and self.expires_at <= self.now
        if self.is_job:
            if expired and self.state == State.QUEUED:
                return False
            return self._by_state or (self.until is not None and self.until > self.now)
        if self.surface == PUBLISH:
            # Never before its job has ended.
            return not expired or job in {"queued", "running"}
        if self.state == Holding.FREE:
            return False
        return not (expired and self.state == Holding.SETTLED)

    @property
    def _by_state(self) -> bool:
        return bool(self.rule >> self.state & 1)

    @property
    def held_until(self) -> int | None:
        """When time alone frees it; None where something else has to happen."""
        if self.is_job:
            return None if self._by_state else self.until
        return self.expires_at if self.state == Holding.SETTLED else self.until

    @property
    def word(self) -> HolderState:
        """Its state, in a word."""
        if self.is_job:
            return STATE_WORDS[self.state]
        if self.state == Holding.SETTLED:
            return "settled"
        if self.until is not None and self.until > self.now:
            return "held"
        return "unknown" if TAKEOVERS[self.rule] == "refuse" else "abandoned"


class KeyHolder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who has a key on one surface, in one scope."""

    surface: str
    """`job` for a unique key; `publish`, `http`, `webhook`, `form`, `once`, `lock`, or your own."""
    scope: str
    """Of a job's key its kind (empty: across kinds), of a publish key its queue; else whose it is,
    or what for."""
    key: str
    state: HolderState
    """`held`: an attempt is at work. `settled`: it is done, and its answer is given again.
    `unknown`: the attempt has vanished, and nobody may run it before somebody has looked.
    `abandoned`: the same, and the next one takes it over."""
    since: Moment
    until: Moment | None
    """When time frees it; of `held`, when its lease ends, and its takeover decides. None: never, or
    not before something else has happened."""
    unique_while: UniqueWhile | None = None
    """Of a job: the part of its life in which it holds its key; None where a window alone does."""
    takeover: Takeover | None = None
    """Of a claim: what becomes of it when its attempt vanishes."""
    fence: int
    fingerprint: str | None
    """Of the request that it was first asked for with."""
    matches: bool | None = None
    """Whether the request in question is that one; None where that is not known."""
    job: HeldJob | None = None
    suppressed: Duplicates = NOTHING_SUPPRESSED
    """Whom it has kept away: how many, the first and the last, and the last ones."""


class Why(msgspec.Struct, frozen=True):
    """Everybody who has a key. Nobody: it is free on every surface."""

    key: str
    holders: tuple[KeyHolder, ...]

    def __iter__(self) -> Iterator[KeyHolder]:
        """The holders, by surface and scope."""
        return iter(self.holders)

    def __len__(self) -> int:
        """On how many surfaces, and in how many scopes, it is held."""
        return len(self.holders)


class Question(msgspec.Struct, frozen=True):
    """The request that somebody asks about, as far as it is known."""

    fingerprint: str | None = None
    payload: Any = msgspec.UNSET

    def matches(self, row: HolderRow, job: HeldJob | None) -> bool | None:
        """Whether it is the one that the key stands for."""
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
    """What a reader is told of a row."""
    until = row.held_until
    return KeyHolder(
        surface=row.surface,
        scope=row.scope,
        key=key,
        state=row.word,
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
