"""The values of the model of jobs. Times are whole seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

FINAL = ("completed", "dead", "cancelled")

Key: TypeAlias = tuple[str, str, str]
"""Tenant, kind or "" for across kinds, key."""

Place: TypeAlias = tuple[str, str, str]
"""Of a publish key: tenant, queue, key."""


@dataclass(frozen=True)
class Asked:
    """What an enqueue asks for."""

    kind: str
    payload: int
    queue: str
    priority: int = 0
    delay: int = 0
    max_attempts: int = 8
    unique_key: str | None = None
    unique_while: str | None = None
    unique_for: int | None = None
    across_kinds: bool = False
    publish_key: str | None = None
    publish_for: int = 24 * 3600
    backoff: int = 0
    retention: tuple[tuple[str, int], ...] = ()
    expires_in: int | None = None
    expires_at: int | None = None
    """Fixed when the call is made; a successor keeps it."""


@dataclass(frozen=True)
class Answer:
    """What an enqueue or a replay is told."""

    id: str
    duplicate: bool = False
    state: str | None = "queued"
    mismatch: bool = False
    replaced: bool = False


@dataclass(frozen=True)
class Policy:
    """What a call wants done about duplicates."""

    on_duplicate: str = "keep"
    on_mismatch: str = "flag"
    max_wait: int | None = None


class Refused(Exception):
    """The call is refused: by which error, and for which item."""

    def __init__(self, error: str, item: int | None = None) -> None:
        super().__init__(error, item)
        self.error, self.item = error, item


class Past(NamedTuple):
    """A delivery that has ended."""

    attempt: int
    outcome: str
    taken_at: int | None
    ended_at: int


@dataclass
class Record:
    """One job as it is kept."""

    number: int
    id: str | None
    tenant: str
    asked: Asked
    run_at: int
    created_at: int
    key: Key | None
    scope: str | None
    window_until: int | None
    expires_at: int | None
    state: str = "queued"
    attempt: int = 0
    fence: int = 0
    vanished: int = 0
    generation: int = 0
    not_before: int | None = None
    """The end of a backoff, which no newcomer shortens."""
    lease_until: int | None = None
    taken_at: int | None = None
    ended_at: int | None = None
    keep_until: int | None = None
    reason: str | None = None
    stripped: bool = False
    lapsed: bool = False
    """Given up for lost, and taken by nobody since: its delivery may still finish."""
    yielded: bool = False
    """The key went to another job: only a replay asks for it again."""
    successor: Asked | None = None
    successor_run_at: int = 0
    history: dict[int, Past] = field(default_factory=dict[int, Past])
    """By fence: the deliveries that ended, save the one that completed it."""

    def note(self, outcome: str, at: int) -> None:
        """The last delivery has ended."""
        self.history[self.fence] = Past(self.attempt, outcome, self.taken_at, at)

    @property
    def contents(self) -> tuple[str, int]:
        return (self.asked.kind, self.asked.payload)

    def holds(self, now: int) -> bool:
        if self.key is None or self.yielded:
            return False
        if self.window_until is not None and now < self.window_until:
            return True
        return self.scope is not None and (
            self.state == "queued"
            or (self.state == "running" and self.scope != "queued")
            or self.scope == "exists"
        )


@dataclass
class PublishKey:
    """A publish key, and the job that stands for it."""

    record: int
    contents: tuple[str, str, int]
    expires_at: int


def take_order(record: Record, queues: Sequence[str]) -> tuple[int, int, int]:
    return (queues.index(record.asked.queue), record.asked.priority, record.run_at)


def unique_key_of(tenant: str, asked: Asked) -> Key | None:
    if asked.unique_key is None:
        return None
    return (tenant, "" if asked.across_kinds else asked.kind, asked.unique_key)
