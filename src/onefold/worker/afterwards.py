"""What follows when the database has accepted, or refused, what a worker said of a delivery."""

from __future__ import annotations

import asyncio
import inspect
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from onefold.model.canonical import decode_payload
from onefold.model.event import JobEnded, WriteFenced
from onefold.model.lifecycle import Event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from onefold.calls.hooks import Hooks
    from onefold.model.event import JobOutcome
    from onefold.model.job import Job, StateWord
    from onefold.worker.handlers import Handler
    from onefold.worker.held import Held
    from onefold.worker.verdict import Verdict

OUTCOMES: Final[dict[Event, JobOutcome]] = {
    Event.FINISH: "completed",
    Event.FAIL: "retried",
    Event.DEFER: "deferred",
    Event.BURY: "dead",
    Event.CANCEL: "cancelled",
    Event.HAND_BACK: "handed back",
}

SHOWN: Final = 200
"""Characters of an error's message in a line of the log."""

log: logging.Logger = logging.getLogger("onefold.worker")


class Afterwards:
    """Tells listeners, writes logs, and calls `on_dead`."""

    def __init__(self, hooks: Hooks, read: Callable[[str, str], Awaitable[Job | None]]) -> None:
        """`read` gives a job as it stands now, by tenant and id."""
        self._hooks = hooks
        self._read = read
        self._calls: set[asyncio.Task[None]] = set()

    def accepted(self, held: Held, word: Verdict, state: StateWord | None) -> None:
        """The database has written it down."""
        outcome = "dead" if state == "dead" else OUTCOMES[word.event]
        if self._hooks.wanted:
            self._tell(held, outcome, word.error_type)
        if word.event is not Event.FINISH:
            self._log(held, outcome, word)
        if outcome == "dead":
            self.dead(held.job.tenant, held.job.id, held.declared)

    def fenced(self, held: Held) -> None:
        """Somebody else had the job by then: what we said was refused."""
        job = held.job
        log.warning(
            "Job %s (%s) ended here after its lease was lost; its end was refused (fence %d).",
            job.id, job.kind, job.fence, extra=_known(job),
        )  # fmt: skip
        if self._hooks.wanted:
            self._hooks.tell(WriteFenced(job.id, job.kind, job.fence))
        self.lost(held)

    def lost(self, held: Held) -> None:
        """Nothing is said about it."""
        if self._hooks.wanted:
            self._tell(held, "lost", None)

    def parked(self, held: Held) -> None:
        """Somebody else will say how it ended: the handler has seen to that."""
        if self._hooks.wanted:
            self._tell(held, "awaiting", None)

    def _tell(self, held: Held, outcome: JobOutcome, error_type: str | None) -> None:
        duration = timedelta(seconds=held.duration)
        self._hooks.tell(JobEnded(held.job, outcome, duration, error_type))

    def _log(self, held: Held, outcome: str, word: Verdict) -> None:
        level = logging.ERROR if outcome == "dead" else logging.INFO
        if outcome == "retried":
            level = logging.WARNING
        job = held.job
        error = None if word.error is None else decode_payload(word.error)
        log.log(
            level, "Job %s (%s) was %s in attempt %d: %s",
            job.id, job.kind, "buried" if outcome == "dead" else outcome, job.attempt,
            _why(word, error),
            extra=_known(job, error),
        )  # fmt: skip

    def dead(self, tenant: str, job_id: str, declared: Handler | None) -> None:
        """Call the handler's `on_dead`, if it has one."""
        if declared is not None and declared.on_dead is not None:
            task = asyncio.create_task(self._call_on_dead(tenant, job_id, declared.on_dead))
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

    async def settle(self, seconds: float) -> None:
        """Let what was begun end, in the time that is left for it."""
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=max(seconds, 0))
            for call in late:
                call.cancel()
            if late:
                log.error("%d calls of on_dead have not ended in time: given up.", len(late))


def _known(job: Job, error: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a record says of its job beside the sentence, for logs that programs read."""
    known: dict[str, Any] = {"job_id": job.id, "kind": job.kind, "attempt": job.attempt}
    if error is not None and error.get("traceback"):
        # Not exc_info: the handler may have run in another process.
        known["exception"] = f"{error['traceback']}{error.get('type')}: {error.get('message')}"
    return known


def _why(word: Verdict, error: Mapping[str, Any] | None) -> str:
    message = str((error or {}).get("message") or "").partition("\n")[0]
    parts = [part for part in (word.error_type, message[:SHOWN]) if part]
    return ": ".join(parts) or word.reason or "as asked"
