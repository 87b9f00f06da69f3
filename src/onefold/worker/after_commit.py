"""After the report of a delivery: events for listeners, log lines, and `on_dead`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from onefold.model.event import JobEnded, WriteFenced
from onefold.model.json_text import decode_payload
from onefold.model.lifecycle import Event
from onefold.model.statistics import Tally
from onefold.worker.job_log import Sample, job_fields, job_log, lasted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from onefold.hooks import Hooks
    from onefold.model.event import JobOutcome
    from onefold.model.job import Job, JobState
    from onefold.worker.delivery_outcome import DeliveryOutcome
    from onefold.worker.executor import Handler, HeldDelivery

OUTCOMES: Final[dict[Event, JobOutcome]] = {
    Event.FINISH: "completed",
    Event.FAIL: "retried",
    Event.DEFER: "deferred",
    Event.BURY: "dead",
    Event.CANCEL: "cancelled",
    Event.HAND_BACK: "handed back",
}

STATES: Final[dict[JobOutcome, str]] = {
    "completed": "completed",
    "retried": "retrying",
    "deferred": "scheduled",
    "dead": "dead",
    "cancelled": "cancelled",
    "handed back": "ready",
}
"""The state of the job after each outcome."""

LEVELS: Final[dict[JobOutcome, int]] = {"dead": logging.ERROR, "retried": logging.WARNING}

PLACES: Final[dict[JobOutcome, int]] = {"completed": 0, "retried": 1, "deferred": 2, "dead": 3}
"""The outcomes that are counted, and where."""

SHOWN: Final = 200
"""Characters of an error message or a reason in a log line."""

log: logging.Logger = logging.getLogger("onefold.worker")


class AfterCommit:
    """Sends events, writes the log, and calls `on_dead`."""

    def __init__(self, hooks: Hooks, read: Callable[[str, str], Awaitable[Job | None]]) -> None:
        """`read` returns the present state of a job, by tenant and id."""
        self._hooks = hooks
        self._counts: dict[str, list[float]] = {}
        """By queue: the numbers of `PLACES`, then waited (microseconds) and ran (seconds), each in
        total and the longest."""
        self._read = read
        self._calls: set[asyncio.Task[None]] = set()
        self._sample = Sample()

    def accepted(
        self,
        held: HeldDelivery,
        reported: DeliveryOutcome,
        state: JobState | None,
        retry_in: timedelta | None = None,
    ) -> None:
        """The database has accepted the outcome."""
        outcome = "dead" if state == "dead" else OUTCOMES[reported.event]
        if (place := PLACES.get(outcome)) is not None:
            job, ran = held.row, held.duration
            # A list, and no call: this runs for every job.
            counts = self._counts.get(job.queue)
            if counts is None:
                counts = self._counts[job.queue] = [0, 0, 0, 0, 0, 0, 0.0, 0.0]
            counts[place] += 1
            if (waited := (job.taken_at or 0) - job.run_at) > 0:
                counts[4] += waited
                counts[5] = max(counts[5], waited)
            counts[6] += ran
            counts[7] = max(counts[7], ran)
        if self._hooks.listeners:
            self._tell(held, outcome, reported.error_type)
        level = LEVELS.get(outcome, logging.INFO)
        if job_log.isEnabledFor(level) and (level > logging.INFO or self._sample.admits()):
            self._log(level, held, outcome, reported, retry_in)
        if outcome == "dead":
            self.dead(held.row.tenant, held.row.id, held.handler)

    def take_tallies(self) -> dict[str, Tally]:
        """What was counted since the last call, by queue."""
        taken, self._counts = self._counts, {}
        return {queue: _tally(*counts) for queue, counts in taken.items()}

    def fenced(self, held: HeldDelivery) -> None:
        """The database has rejected the outcome: another delivery has the job."""
        job = held.row
        log.warning(
            "Job %s (%s) ended here after its lease was lost; its outcome was rejected (fence %d).",
            job.id, job.kind, job.fence, extra=job_fields(job),
        )  # fmt: skip
        if self._hooks.listeners:
            self._hooks.tell(WriteFenced(job.id, job.kind, job.fence))
        self.lost(held)

    def lost(self, held: HeldDelivery) -> None:
        """The lease is lost: no outcome is reported."""
        if self._hooks.listeners:
            self._tell(held, "lost", None)

    def parked(self, held: HeldDelivery) -> None:
        """The job waits for an ack, which ends the delivery."""
        if job_log.isEnabledFor(logging.INFO) and self._sample.admits():
            job = held.row
            job_log.info(
                "Job %s (%s) awaits its ack in attempt %d after %s.",
                job.id, job.kind, job.attempt, lasted(held.duration),
                extra={**job_fields(job), "state": "awaiting", "duration": held.duration},
            )  # fmt: skip
        if self._hooks.listeners:
            self._tell(held, "awaiting", None)

    def _tell(self, held: HeldDelivery, outcome: JobOutcome, error_type: str | None) -> None:
        duration = timedelta(seconds=held.duration)
        self._hooks.tell(JobEnded(held.job, outcome, duration, error_type))

    def _log(
        self,
        level: int,
        held: HeldDelivery,
        outcome: JobOutcome,
        reported: DeliveryOutcome,
        retry_in: timedelta | None,
    ) -> None:
        """One line with the kind, id, attempt, outcome and duration."""
        job = held.row
        stored = reported.error
        error: dict[str, Any] = {} if stored is None else decode_payload(stored)
        fields = job_fields(job) | {"state": STATES[outcome], "duration": held.duration}
        if error.get("traceback"):
            # Not exc_info: the handler may have run in another process.
            fields["exception"] = f"{error['traceback']}{error.get('type')}: {error.get('message')}"
        line = f"Job {job.id} ({job.kind}) was {'buried' if outcome == 'dead' else outcome}"
        if reported.event is Event.HAND_BACK and held.cause is None:
            job_log.log(level, "%s before its handler began.", line, extra=fields)
            return
        line += f" in attempt {job.attempt} after {lasted(held.duration)}"
        if retry_in is not None and outcome in {"retried", "deferred"}:
            fields["retry_in"] = retry_in.total_seconds()
            line += f", next try in {lasted(retry_in.total_seconds())}"
        why = "" if reported.event is Event.FINISH else f": {_why(reported, error)}"
        job_log.log(level, "%s%s", line, why or ".", extra=fields)

    def dead(self, tenant: str, job_id: str, handler: Handler | None) -> None:
        """Call the handler's `on_dead`, if it has one."""
        if handler is not None and handler.on_dead is not None:
            task = asyncio.create_task(self._call_on_dead(tenant, job_id, handler.on_dead))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _call_on_dead(self, tenant: str, job_id: str, on_dead: Callable[[Job], Any]) -> None:
        try:
            job = await self._read(tenant, job_id)
            if job is None:
                log.warning("Job %s was removed before its on_dead could be called.", job_id)
            elif inspect.iscoroutinefunction(on_dead):
                await on_dead(job)
            else:
                await asyncio.to_thread(on_dead, job)
        except Exception:
            log.exception("on_dead failed for job %s.", job_id)

    async def close(self, seconds: float) -> None:
        """Wait for running calls of `on_dead`, for at most so many seconds."""
        self._sample.flush()
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=max(seconds, 0))
            for call in late:
                call.cancel()
            if late:
                log.error("%d calls of on_dead have not ended in time: cancelled.", len(late))


def _tally(*counts: float) -> Tally:
    *ended, waited, waited_longest, ran, ran_longest = counts
    completed, retried, deferred, dead = map(int, ended)
    return Tally(
        completed,
        retried,
        deferred,
        dead,
        measured=completed + retried + deferred + dead,
        waited_total=int(waited),
        waited_longest=int(waited_longest),
        ran_total=int(ran * 1_000_000),
        ran_longest=int(ran_longest * 1_000_000),
    )


def _why(reported: DeliveryOutcome, error: Mapping[str, Any]) -> str:
    message = _line(str(error.get("message") or ""))
    parts = [part for part in (reported.error_type, message) if part]
    decided = "the worker stops" if reported.event is Event.HAND_BACK else "as the handler decided"
    return ": ".join(parts) or _line(reported.reason or "") or decided


def _line(text: str) -> str:
    """The first line of a text, shortened."""
    return "".join(text.splitlines()[:1])[:SHOWN]
