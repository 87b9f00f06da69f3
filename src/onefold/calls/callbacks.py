"""The calls by which a worker answers for a delivery that was pushed to it: by the job's id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.checks import REASON_BYTES, text
from onefold.model.claim import encode_result
from onefold.model.delivery import FENCES, Ended, encode_error
from onefold.model.event import JobEnded, JobOutcome
from onefold.model.ids import parse_id
from onefold.model.lifecycle import Event
from onefold.model.timestamps import MICROSECOND, span
from onefold.operations import acks, jobs
from onefold.operations.acks import Acknowledgement
from onefold.operations.statement import Operation, Sql

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.databases import Build
    from onefold.model.job import Job, Json

Callback: TypeAlias = Callable[[Sql], Operation[Ended]]

NACK: Final = "Nack"
NACKED: Final = "nacked"
NO_REASON: Final = "the worker said that it has failed"


class CallbackCalls:
    """A word about a job's delivery: the one of that fence or, without one, the present one.

    `Ended.status` is `already` where the same was said before. Raises `JobNotFound`, `LeaseLost`
    where the fence is not the job's any more, and `WrongState` where the delivery has ended in
    another way, or where there was none.
    """

    _conductor: Conductor
    _tenant: str

    def acknowledge(self, job_id: str, *, fence: int | None = None, result: Json = None) -> Ended:
        """The work is done, with what it gave."""
        return self._conductor.run(self._acknowledge(job_id, fence, result))

    async def aacknowledge(
        self, job_id: str, *, fence: int | None = None, result: Json = None
    ) -> Ended:
        """`acknowledge`, awaited."""
        return await self._conductor.arun(self._acknowledge(job_id, fence, result))

    def _acknowledge(self, job_id: str, fence: int | None, result: Json) -> Procedure[Ended]:
        wanted, under = parse_id(job_id), _fence(fence)
        stored = None if result is None else encode_result(result)
        return self._say(
            wanted,
            lambda sql: acks.acknowledge(sql, self._tenant, wanted, fence=under, result=stored),
        )

    def nack(
        self,
        job_id: str,
        *,
        retryable: bool = True,
        reason: str | None = None,
        fence: int | None = None,
    ) -> Ended:
        """The work has failed: try it again by the job's backoff or, not `retryable`, bury it."""
        word = _nack(retryable=retryable, reason=reason)
        return self._conductor.run(self._word(job_id, word, fence))

    async def anack(
        self,
        job_id: str,
        *,
        retryable: bool = True,
        reason: str | None = None,
        fence: int | None = None,
    ) -> Ended:
        """`nack`, awaited."""
        word = _nack(retryable=retryable, reason=reason)
        return await self._conductor.arun(self._word(job_id, word, fence))

    def defer_job(
        self,
        job_id: str,
        *,
        after: timedelta,
        reason: str | None = None,
        fence: int | None = None,
        hold_queue: bool = False,
    ) -> Ended:
        """Not now: again after `after`, and no attempt is burned.

        With `hold_queue` nothing of the whole queue is given until then, and one job goes first.
        """
        word = _defer(after, reason, hold_queue=hold_queue)
        return self._conductor.run(self._word(job_id, word, fence))

    async def adefer_job(
        self,
        job_id: str,
        *,
        after: timedelta,
        reason: str | None = None,
        fence: int | None = None,
        hold_queue: bool = False,
    ) -> Ended:
        """`defer_job`, awaited."""
        word = _defer(after, reason, hold_queue=hold_queue)
        return await self._conductor.arun(self._word(job_id, word, fence))

    def _word(self, job_id: str, word: Acknowledgement, fence: int | None) -> Procedure[Ended]:
        wanted, under = parse_id(job_id), _fence(fence)
        return self._say(
            wanted,
            lambda sql: acks.say(sql, self._tenant, wanted, word, fence=under),
            deferred=word.event is Event.DEFER,
        )

    def heartbeat_job(
        self, job_id: str, *, lease: timedelta | None = None, fence: int | None = None
    ) -> Ended:
        """The work goes on, for `lease` from now; the ack timeout of its queue unless told."""
        return self._conductor.run(self._heartbeat_job(job_id, lease, fence))

    async def aheartbeat_job(
        self, job_id: str, *, lease: timedelta | None = None, fence: int | None = None
    ) -> Ended:
        """`heartbeat_job`, awaited."""
        return await self._conductor.arun(self._heartbeat_job(job_id, lease, fence))

    def _heartbeat_job(
        self, job_id: str, lease: timedelta | None, fence: int | None
    ) -> Procedure[Ended]:
        wanted, under = parse_id(job_id), _fence(fence)
        micros = None if lease is None else span(lease, "lease", least=MICROSECOND)
        ended: Ended = yield Transaction(
            lambda sql: acks.heartbeat(sql, self._tenant, wanted, fence=under, lease=micros)
        )
        return ended

    def _say(self, job_id: str, callback: Callback, *, deferred: bool = False) -> Procedure[Ended]:
        """Carry it out, and tell whoever listens how the delivery has ended."""
        hooks = self._conductor.hooks
        ended: Ended
        job: Job | None
        ended, job = yield Transaction(_heard(self._tenant, job_id, callback, read=hooks.wanted))
        if job is not None and ended.status == "accepted":
            outcome = "deferred" if deferred else _OUTCOMES.get(job.state, "retried")
            failed = outcome in ("retried", "dead")
            taken_at = job.read_at_micros if job.taken_at_micros is None else job.taken_at_micros
            duration = (job.read_at_micros - taken_at) * MICROSECOND
            hooks.tell(JobEnded(job, outcome, duration, NACK if failed else None))
        return ended


_OUTCOMES: Final[dict[str, JobOutcome]] = {"completed": "completed", "dead": "dead"}


def _heard(
    tenant: str, job_id: str, callback: Callback, *, read: bool
) -> Build[tuple[Ended, Job | None]]:
    def build(sql: Sql) -> Operation[tuple[Ended, Job | None]]:
        ended = yield from callback(sql)
        found = (yield from jobs.get(sql, tenant, [job_id])) if read else {}
        return ended, found.get(job_id)

    return build


def _fence(fence: object) -> int | None:
    if fence is not None and (type(fence) is not int or fence not in FENCES):
        raise InvalidInput("fence", f"must be a whole number of 64 bits, got {fence!r}")
    return fence


def _nack(*, retryable: bool, reason: str | None) -> Acknowledgement:
    again = checks.flag(retryable, "retryable")
    why = _reason(reason)
    error = encode_error({"type": NACK, "message": NO_REASON if why is None else why})
    if again:
        return Acknowledgement(Event.FAIL, reason=why, error=error)
    return Acknowledgement(Event.BURY, reason=NACKED if why is None else why, error=error)


def _defer(after: timedelta, reason: str | None, *, hold_queue: bool) -> Acknowledgement:
    return Acknowledgement(
        Event.DEFER,
        after=span(after, "after"),
        reason=_reason(reason),
        hold_queue=checks.flag(hold_queue, "hold_queue"),
    )


def _reason(reason: str | None) -> str | None:
    return None if reason is None else text(reason, "reason", longest=REASON_BYTES)
