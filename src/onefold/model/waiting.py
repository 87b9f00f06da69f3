"""Why a job waits: one answer, for the library, HTTP, the command line and the dashboard. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.model.checks import shown
from onefold.model.failure import printable
from onefold.model.json_text import decode_payload
from onefold.model.queue import HELD
from onefold.model.statistics import counted
from onefold.model.timestamps import Moment, from_micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.model.attempt import Attempt
    from onefold.model.job import JobRow
    from onefold.model.queue import Queue

WaitingCode: TypeAlias = Literal[
    "scheduled", "retrying", "awaiting", "expired", "paused", "held", "limit", "order", "rate",
    "no_worker", "unknown_kind", "busy", "next",
]  # fmt: skip

MOST_AHEAD: Final = 1_000
"""Jobs before a job that are counted."""
MOST_NAMED: Final = 10
"""Jobs that an answer names."""
_ERROR_BYTES: Final = 200


class WaitingFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The facts of the reason; those that it does not have are null."""

    queue: str
    """The queue of the job."""
    kind: str
    """The kind of the job."""
    group: str | None = None
    """The group whose limit or order is the reason; null if it is the queue's."""
    until: Moment | None = None
    """When the reason ends by itself."""
    limit: int | None = None
    """How many jobs run at once."""
    rate: str | None = None
    """How many jobs start per period."""
    jobs: tuple[str, ...] = ()
    """The jobs in its way, at most ten, of its tenant."""
    workers: int | None = None
    """How many live workers serve the queue; of `busy` and `next`, how many can take the job."""
    ahead: int | None = None
    """How many due jobs of the queue are before it; of very many, only some are counted."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a job has not started, or has not ended."""

    code: WaitingCode
    """For programs. `scheduled`, `retrying`: it is not due. `awaiting`: it was pushed, and has no
    acknowledgement. `expired`: it is buried soon. `paused`, `held`, `limit`, `rate`: its queue, or
    the limit of its group. `order`: an older job of its group. `no_worker`, `unknown_kind`,
    `busy`: its workers. `next`: nothing but the jobs before it.
    """
    text: str
    """For people."""
    facts: WaitingFacts
    """What the text says, for programs."""


class Ahead(msgspec.Struct, frozen=True):
    """The due jobs that are before a job."""

    number: int
    is_all: bool
    """False: there may be more."""

    def __str__(self) -> str:
        return counted(self.number, "due job") + ("" if self.is_all else " or more")


class WaitingReasons:
    """The reasons that a job can have, each with its text."""

    def __init__(self, job: JobRow) -> None:
        self._job = job
        self._queue = shown(job.tenant, job.queue)

    def _because(self, code: WaitingCode, text: str, **facts: Any) -> Waiting:
        known = WaitingFacts(queue=self._queue, kind=self._job.kind, **facts)
        return Waiting(code=code, text=text, facts=known)

    def awaits(self, until: int) -> Waiting:
        """It was pushed, and the ack is not late."""
        at = from_micros(until)
        text = f"It was pushed, and awaits an acknowledgement until {_at(at)}."
        return self._because("awaiting", text, until=at)

    def expired(self, since: int) -> Waiting:
        """Its time is over, and no chore has buried it yet."""
        text = f"It expired at {_at(from_micros(since))}: it does not start, and is buried soon."
        return self._because("expired", text)

    def not_due(self, last: Attempt | None) -> Waiting:
        """It is due later; `last` is the delivery that was the last to end."""
        job, at = self._job, from_micros(self._job.run_at)
        if job.attempt and last is not None and last.outcome in {"retried", "lease expired"}:
            error = "" if job.error is None else f" ({_problem(job.error)})"
            text = f"Attempt {job.attempt} of {job.max_attempts} failed{error}. It is tried again"
            return self._because("retrying", f"{text} at {_at(at)}.", until=at)
        deferred = last is not None and last.outcome == "deferred"
        text = "It was deferred, and is not due until" if deferred else "It is not due until"
        return self._because("scheduled", f"{text} {_at(at)}.", until=at)

    def paused(self, queue: Queue) -> Waiting:
        """An operator, or the endpoint, has paused its queue."""
        reason = "" if queue.paused_reason is None else f" ({queue.paused_reason})"
        text = f"The queue {self._queue} is paused{reason}. Its jobs start when it is resumed."
        return self._because("paused", text)

    def no_worker(self, *, pushed: bool) -> Waiting:
        """No worker that is alive serves its queue."""
        way = "Start onefold serve." if pushed else "Start one, or give the queue an endpoint."
        text = f"No live worker serves the queue {self._queue}. {way}"
        return self._because("no_worker", text, workers=0)

    def unknown_kind(self, serving: int) -> Waiting:
        """Workers serve its queue, and none has a handler for it."""
        text = (
            f"No live worker knows the kind {self._job.kind}:"
            f" {counted(serving, 'worker')} of the queue {self._queue} without a handler for it."
        )
        return self._because("unknown_kind", text, workers=serving)

    def held(self, queue: Queue) -> Waiting:
        """Its queue gives no job for a time."""
        assert queue.held_until is not None
        why = f": {HELD[queue.held_why]}" if queue.held_why else ""
        text = f"The queue {self._queue} is held until {_at(queue.held_until)}{why}."
        return self._because("held", text, until=queue.held_until)

    def probed(self, probe: Sequence[str]) -> Waiting:
        """The hold is over, and one job runs to prove that the next ones may."""
        text = (
            f"The queue {self._queue} was held, and runs one job at a time until one succeeds"
            f"{_named(probe)}."
        )
        return self._because("held", text, jobs=tuple(probe))

    def limit(self, most: int, group: str | None, running: Sequence[str]) -> Waiting:
        """As many jobs run as may run at once."""
        text = f"{self._place(group)} runs at most {counted(most, 'job')} at once{_named(running)}."
        return self._because("limit", text, limit=most, group=group, jobs=tuple(running))

    def order(self, group: str, first: Sequence[str]) -> Waiting:
        """Its group runs in order, and an older job has not ended."""
        text = f"{self._place(group)} runs one job at a time, in order{_named(first)}."
        return self._because("order", text, group=group, jobs=tuple(first))

    def rate(self, rate: str, group: str | None, until: int) -> Waiting:
        """As many jobs have started as may start in a time."""
        at = from_micros(until)
        text = f"{self._place(group)} starts at most {rate}, and the next job at {_at(at)}."
        return self._because("rate", text, rate=rate, group=group, until=at)

    def taken_in_turn(self, able: int, ahead: Ahead, *, busy: bool) -> Waiting:
        """Nothing else is in its way; `able` workers can take it."""
        text = f"A worker takes it when it has a place for the queue {self._queue}."
        if busy:
            text = f"Every worker that can take it is busy ({counted(able, 'live worker')})."
        text = f"{text} Before it: {ahead}."
        code: WaitingCode = "busy" if busy else "next"
        return self._because(code, text, workers=able, ahead=ahead.number)

    def _place(self, group: str | None) -> str:
        of = f"The queue {self._queue}"
        return of if group is None else f"The group {group} of the queue {self._queue}"


def _named(jobs: Sequence[str]) -> str:
    return f", now {', '.join(jobs)}" if jobs else ""


def _at(moment: Moment) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _problem(stored: str) -> str:
    error = decode_payload(stored)
    parts = [str(part) for part in (error.get("type"), error.get("message")) if part]
    return printable(": ".join(parts).partition("\n")[0], _ERROR_BYTES)
