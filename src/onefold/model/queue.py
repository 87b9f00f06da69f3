"""A queue as operators and workers see it: its settings, what waits in it, and what it gave."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.model import given, names
from onefold.model.limit import Limit, Rate
from onefold.model.moment import MICROSECOND

StoredLimit: TypeAlias = tuple[int | None, int | None, int | None]
"""Concurrency, and the count and period of a rate."""


class QueueLimits(msgspec.Struct, frozen=True):
    """What somebody has said about a queue: the code, or an operator."""

    limit: Limit | None = None
    """Of the whole queue."""
    group_limit: Limit | None = None
    """Of each of its groups."""
    ordered: bool = False
    """The jobs of a group run one at a time, in the order of their enqueueing."""

    @property
    def controlled(self) -> bool:
        """True where there is anything to count or to order."""
        limits = (self.limit, self.group_limit)
        limiting = any(one and (one.concurrency or one.rate) for one in limits)
        return self.ordered or limiting

    @property
    def stored(self) -> tuple[StoredLimit, StoredLimit]:
        """Both limits as they are stored."""
        return _stored(self.limit), _stored(self.group_limit)


def _stored(limit: Limit | None) -> StoredLimit:
    if limit is None:
        return (None, None, None)
    if limit.rate is None:
        return (limit.concurrency, None, None)
    return (limit.concurrency, limit.rate.count, limit.rate.period // MICROSECOND)


def stored_limit(concurrency: int | None, count: int | None, period: int | None) -> Limit | None:
    """A limit as it was stored; its key, which only enqueues use, is the code's to know."""
    rate = stored_rate(count, period)
    if concurrency is None and rate is None:
        return None
    return Limit(concurrency=concurrency, rate=rate)


def stored_rate(count: int | None, period: int | None) -> Rate | None:
    """A rate as it was stored."""
    return None if count is None or period is None else Rate(count, period * MICROSECOND)


def queue_limits(limit: Limit | None, group_limit: Limit | None, *, ordered: bool) -> QueueLimits:
    """Check what is said about a queue."""
    for name, value in (("limit", limit), ("group_limit", group_limit)):
        if value is not None and not isinstance(value, Limit):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(name, f"must be a Limit, got {value!r}")
    if limit is not None and limit.key is not None:
        raise InvalidInput("limit", "has a key, which only a group_limit can have")
    return QueueLimits(limit, group_limit, given.flag(ordered, "ordered"))


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with what was said about it and what is in it."""

    name: str
    paused: bool = False
    limit: Limit | None = None
    group_limit: Limit | None = None
    ordered: bool = False
    declared: bool = True
    """False where an operator has set the limits: what the code declares does not count then."""
    ready: int = 0
    """Queued and due."""
    oldest: timedelta | None = None
    """For how long the oldest of those has been due."""
    scheduled: int = 0
    """Queued for later, retries included."""
    running: int = 0
    held_until: datetime | None = None
    """Until then it gives nothing, and afterwards one job at a time until one has gone well."""
    held_why: str | None = None
    """`backpressure`, `deferred` or `circuit`."""


class Outlook(msgspec.Struct, frozen=True, gc=False):
    """What an idle worker finds when it looks at a queue."""

    queue: str
    paused: bool
    controlled: bool
    """True where a plain take gives nothing: limited, ordered or held."""
    due: bool
    """A job without a group is due."""
    due_grouped: bool
    """A job with a group is due, though its group may have to wait."""
    next_at: int | None
    """When the next job will be due, in microseconds since the epoch."""
    now: int
    """The database's clock when it was asked."""

    @property
    def wait(self) -> int | None:
        """Microseconds until the next job will be due."""
        return None if self.next_at is None else max(0, self.next_at - self.now)

    def joined(self, other: Outlook) -> Outlook:
        """The same queue on another shard, seen too."""
        ahead = [at for at in (self.next_at, other.next_at) if at is not None]
        return Outlook(
            self.queue,
            self.paused or other.paused,
            self.controlled or other.controlled,
            self.due or other.due,
            self.due_grouped or other.due_grouped,
            min(ahead, default=None),
            other.now,
        )


def queue_names(queues: object) -> list[str]:
    """Names of queues, each once, in the order given."""
    listed = given.listed(queues, "queues", "names")
    return list(dict.fromkeys(names.queue(queue, "queues") for queue in listed))
