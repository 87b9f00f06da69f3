"""Jobs as a client sees them: what it is told about one, and what it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003 - read by msgspec
from datetime import datetime  # noqa: TC003 - read by msgspec
from typing import Any, Final, Literal, cast

import msgspec

from onefold.client.wire import Said
from onefold.model.job import Json, StateWord, Status  # noqa: TC001 - read by msgspec

AWAITING: Final = "awaiting"
QUEUED: Final = frozenset({"queued", "scheduled", "ready", "retrying"})


class RemoteDelivery(Said, frozen=True, kw_only=True):
    """One delivery of a job."""

    attempt: int = 0
    """The attempt that it was charged as."""
    status: str = ""
    """success, failed, nacked or deferred."""
    outcome: str = ""
    """completed, retried, deferred, dead, cancelled or lease expired."""
    error: str | None = None
    reason: str | None = None
    webhook_status_code: int | None = None
    """What the endpoint answered, where the job was pushed."""
    timestamp: datetime | None = None
    fence: int | None = None
    duration: float | None = None
    """Seconds."""
    excerpt: str | None = None
    """How the endpoint's answer began."""


class RemoteJob(Said, frozen=True, kw_only=True):
    """A job as the server told of it, under the names that `onefold.Job` has."""

    id: str
    queue: str
    kind: str = ""
    word: str = msgspec.field(default="queued", name="state")
    """scheduled, ready, retrying, running, awaiting, completed, dead or cancelled."""
    attempts: int = 0
    max_attempts: int = 0
    defers: int = msgspec.field(default=0, name="deferCount")
    """How often it was deferred since it was enqueued or replayed."""
    fence: int = 0
    priority: int = 0
    payload: Json = None
    result: Json = None
    error: Mapping[str, Any] | None = msgspec.field(default=None, name="failure")
    """The last failure: type and message."""
    reason: str | None = None
    unique_key: str | None = None
    idempotency_key: str | None = None
    group_key: str | None = None
    scheduled_for: datetime | None = None
    created_at: datetime | None = None
    taken_at: datetime | None = msgspec.field(default=None, name="startedAt")
    """When the last delivery began."""
    lease_until: datetime | None = None
    ended_at: datetime | None = None
    expires_at: datetime | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Json] | None = None
    history: tuple[RemoteDelivery, ...] = ()
    """Every delivery, oldest first."""

    @property
    def status(self) -> Status:
        """What users mean: scheduled, ready, retrying, running, awaiting or how it ended."""
        return cast("Status", self.word)

    @property
    def state(self) -> StateWord:
        """What is stored."""
        return state_of(self.word)

    @property
    def is_awaiting(self) -> bool:
        """True where it was pushed, and its worker's ack is waited for."""
        return self.word == AWAITING

    @property
    def attempt(self) -> int:
        """How many attempts it has used."""
        return self.attempts

    @property
    def run_at(self) -> datetime | None:
        """When it may run, or might have run."""
        return self.scheduled_for

    def __repr__(self) -> str:
        """What tells one job from another; the payload may be large, or nobody's business."""
        return (
            f"RemoteJob(id={self.id!r}, kind={self.kind!r}, queue={self.queue!r},"
            f" state={self.state!r}, attempt={self.attempt}, fence={self.fence})"
        )


class RemotePage(Said, frozen=True, kw_only=True):
    """Some jobs, and the cursor that continues after them."""

    jobs: tuple[RemoteJob, ...] = msgspec.field(default=(), name="items")
    next: str | None = None
    """Give it as `after=` for the next page; None on the last."""

    def __iter__(self) -> Iterator[RemoteJob]:
        """The jobs of this page."""
        return iter(self.jobs)

    def __len__(self) -> int:
        """How many jobs this page has."""
        return len(self.jobs)


Accepted = Literal["accepted", "already"]
"""What a callback is told: it ended the delivery, or the delivery had ended so before."""


def state_of(word: str) -> StateWord:
    """The stored state of a word that may say more."""
    if word == AWAITING:
        return "running"
    return "queued" if word in QUEUED else cast("StateWord", word)
