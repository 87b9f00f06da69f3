"""Queues as a client sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003 - read by msgspec
from datetime import datetime  # noqa: TC003 - read by msgspec
from typing import TYPE_CHECKING, Literal, TypedDict

import msgspec

from onefold.client.wire import Said

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.model.lifecycle import Retention
    from onefold.model.retry import Backoff

Mode = Literal["standard", "ack"]


class QueueOptions(TypedDict, total=False):
    """What may be said of a queue. What is left out is the default, whatever it was before."""

    endpoint: str | None
    """Where jobs are pushed to; a queue without one is pulled from."""
    mode: Mode
    """`standard`: an answer of 2xx finishes. `ack`: it waits for the worker's own word."""
    max_attempts: int
    backoff: Backoff | None
    rate: str | None
    """How many jobs begin in a time: `100/m`, `10/30s`."""
    concurrency: int | None
    """How many run at once, on all machines together."""
    timeout: timedelta
    """Of one push; 15 s."""
    ack_timeout: timedelta
    """In ack mode, from the answer to the worker's word; 5 minutes."""
    ack_timeout_action: Literal["retry", "dead"]
    retention: Retention | None
    signing_secret: str | None
    """`whsec_` and base64. Left out, it stays as it is, or is made where there is none yet."""
    headers: Mapping[str, str]
    """Sent along with every push."""
    paused: bool | None
    """Left out, it stays as it is."""


class RemoteCounts(Said, frozen=True, kw_only=True):
    """How many jobs a queue has, by what they are doing."""

    ready: int = 0
    scheduled: int = 0
    running: int = 0
    awaiting: int = 0
    dead: int = 0


class RemoteQueue(Said, frozen=True, kw_only=True):
    """A queue as the server told of it."""

    name: str
    endpoint: str | None = None
    mode: Mode = "standard"
    max_attempts: int = 8
    rate: str | None = msgspec.field(default=None, name="rateLimit")
    concurrency: int | None = None
    timeout: float = 0.0
    """Seconds."""
    ack_timeout: float = 0.0
    """Seconds."""
    ack_timeout_action: str = "retry"
    paused: bool = False
    paused_reason: str | None = None
    held_until: datetime | None = None
    """Until when its endpoint is left alone; then one job goes to try it."""
    held_why: str | None = None
    counts: RemoteCounts | None = None
    signing_secret: str | None = None
    """What its pushes are signed with; only who may change it is told."""

    def __repr__(self) -> str:
        """Without the secret: this may be logged."""
        return f"RemoteQueue(name={self.name!r}, endpoint={self.endpoint!r}, mode={self.mode!r})"


class RemoteQueues(Said, frozen=True, kw_only=True):
    """Some queues, and the cursor that continues after them."""

    queues: tuple[RemoteQueue, ...] = msgspec.field(default=(), name="items")
    next: str | None = None
    """Give it as `after=` for the next page; None on the last."""

    def __iter__(self) -> Iterator[RemoteQueue]:
        """The queues of this page."""
        return iter(self.queues)

    def __len__(self) -> int:
        """How many queues this page has."""
        return len(self.queues)
