"""Statistics per minute, and the state of workers: what operators look at."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.model.timestamps import (
    MICROSECOND,
    Duration,
    Moment,
    as_duration,
    from_micros,
    seconds,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onefold.model.queue import Queue

Counted: TypeAlias = Literal["completed", "retried", "deferred", "dead"]

MINUTE: Final = timedelta(minutes=1) // MICROSECOND
LONGEST: Final = timedelta(hours=24)
KEPT: Final = timedelta(hours=25) // MICROSECOND
"""How long the statistics of a minute are stored."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker, as it has described itself."""

    name: str
    """Its name, as in logs and attempts."""
    host: str
    """The name of its machine."""
    pid: int
    """The id of its process."""
    queues: tuple[str, ...]
    """The queues that it serves; of a worker that pushes, the first hundred."""
    kinds: tuple[str, ...] | None
    """The kinds that it has handlers for. None: it pushes jobs of all kinds to endpoints."""
    concurrency: int
    """Handlers that it runs at once."""
    running: int
    """Jobs that it has taken and not reported yet, without those that wait for their ack."""
    started_at: Moment
    """When it started."""
    seen_at: Moment
    """When it last renewed its row."""
    alive: bool
    """False if it has missed three renewals: it was killed, or cannot reach the database."""

    def takes_from(self, queue: str, *, pushed: bool) -> bool:
        """True if it is alive and serves this queue; `pushed`: the queue has an endpoint."""
        return self.alive and (pushed if self.kinds is None else queue in self.queues)


def alive_workers(workers: Iterable[WorkerStatus]) -> str:
    """How many workers are alive, in words; those that only push to endpoints by themselves."""
    pushing = Counter(worker.kinds is None for worker in workers if worker.alive)
    text = counted(pushing[False], "worker")
    return f"{text}, {counted(pushing[True], 'push worker')}" if pushing[True] else text


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unserved(queues: Iterable[Queue], workers: Sequence[WorkerStatus]) -> dict[str, int]:
    """By full name, the queues whose due jobs no living worker takes, and how many these are."""
    return {
        queue.full_name: queue.counts.ready
        for queue in queues
        if queue.counts is not None and queue.counts.ready
        if not any(
            worker.takes_from(queue.full_name, pushed=queue.endpoint is not None)
            for worker in workers
        )
    }


class WorkerList(msgspec.Struct, frozen=True):
    """The workers of an installation."""

    items: tuple[WorkerStatus, ...]
    """By name."""
    next: None = None
    """There is one page."""


class Tally(msgspec.Struct):
    """The counts of a queue in a minute, while they are added up. Times are microseconds."""

    completed: int = 0
    retried: int = 0
    deferred: int = 0
    dead: int = 0
    duplicates: int = 0
    measured: int = 0
    """Deliveries whose times are in the next fields."""
    waited_total: int = 0
    waited_longest: int = 0
    ran_total: int = 0
    ran_longest: int = 0
    backlog: int | None = None

    def count(self, outcome: Counted) -> None:
        """Count the end of a delivery."""
        if outcome == "completed":
            self.completed += 1
        elif outcome == "retried":
            self.retried += 1
        elif outcome == "deferred":
            self.deferred += 1
        else:
            self.dead += 1

    def measure(self, waited: int, ran: int) -> None:
        """Add the times of a delivery."""
        self.measured += 1
        self.waited_total += waited
        self.ran_total += ran
        self.waited_longest = max(self.waited_longest, waited)
        self.ran_longest = max(self.ran_longest, ran)

    def add(self, other: Tally) -> None:
        """Add the counts of another shard, or of another minute."""
        self.completed += other.completed
        self.retried += other.retried
        self.deferred += other.deferred
        self.dead += other.dead
        self.duplicates += other.duplicates
        self.measured += other.measured
        self.waited_total += other.waited_total
        self.waited_longest = max(self.waited_longest, other.waited_longest)
        self.ran_total += other.ran_total
        self.ran_longest = max(self.ran_longest, other.ran_longest)
        if other.backlog is not None:
            self.backlog = max(self.backlog or 0, other.backlog)


class StatisticsTotal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What has happened in a time."""

    completed: int
    """Jobs that were completed."""
    retried: int
    """Deliveries that failed, or whose lease expired, and that are tried again."""
    deferred: int
    """Deliveries that were put off. No attempt was used up."""
    dead: int
    """Jobs that were buried."""
    duplicates: int
    """Requests that a key has suppressed."""
    waited_mean: Duration | None
    """From the time at which a job is due until it is taken. None without deliveries."""
    waited_longest: Duration | None
    """The longest of these times."""
    ran_mean: Duration | None
    """From the start of a delivery to its end. None without deliveries."""
    ran_longest: Duration | None
    """The longest of these times."""
    backlog: int | None
    """The most due jobs that waited. None without a sample: no job waited, or no worker ran."""


class StatisticsBucket(StatisticsTotal, frozen=True, kw_only=True, rename="camel"):
    """What has happened in one part of the time."""

    at: Moment
    """Its beginning."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What has happened in the last time. Statistics, not a promise: they are written behind."""

    width: Duration
    """The length of a bucket."""
    buckets: tuple[StatisticsBucket, ...]
    """In order, the empty ones included. The last one ends with this minute."""
    total: StatisticsTotal
    """All buckets together."""


class Buckets(msgspec.Struct, frozen=True):
    """The buckets of a request: how many, and how long each is, in microseconds."""

    number: int
    width: int

    @property
    def back(self) -> int:
        """The time from the beginning of the first one to that of this minute."""
        return self.number * self.width - MINUTE

    def filled(self, found: Iterable[tuple[int, Tally]], now: int) -> Statistics:
        """The statistics from the tallies by the beginning of their bucket."""
        first = now - now % MINUTE - self.back
        tallies = {first + step * self.width: Tally() for step in range(self.number)}
        total = Tally()
        for at, tally in found:
            # A clock that is ahead may have made a bucket that has not begun.
            if at in tallies:
                tallies[at].add(tally)
                total.add(tally)
        return Statistics(
            width=as_duration(self.width * MICROSECOND),
            buckets=tuple(
                StatisticsBucket(at=from_micros(at), **_values(tally))
                for at, tally in tallies.items()
            ),
            total=StatisticsTotal(**_values(total)),
        )


def buckets(last: timedelta, width: timedelta) -> Buckets:
    """Check the time and the width of its buckets."""
    each, whole = span(width, "width"), span(last, "last")
    if not each or each % MINUTE:
        raise InvalidInput("width", f"must be whole minutes, got {seconds(width)}")
    if last > LONGEST:
        raise InvalidInput("last", f"must be at most {seconds(LONGEST)}, got {seconds(last)}")
    if not whole or whole % each:
        raise InvalidInput(
            "last", f"must be a multiple of the width {seconds(width)}, got {seconds(last)}"
        )
    return Buckets(whole // each, each)


def _values(tally: Tally) -> dict[str, Any]:
    measured = tally.measured
    return {
        "completed": tally.completed,
        "retried": tally.retried,
        "deferred": tally.deferred,
        "dead": tally.dead,
        "duplicates": tally.duplicates,
        "waited_mean": _duration(tally.waited_total // measured) if measured else None,
        "waited_longest": _duration(tally.waited_longest) if measured else None,
        "ran_mean": _duration(tally.ran_total // measured) if measured else None,
        "ran_longest": _duration(tally.ran_longest) if measured else None,
        "backlog": tally.backlog,
    }


def _duration(micros: int) -> Duration:
    return as_duration(micros * MICROSECOND)
