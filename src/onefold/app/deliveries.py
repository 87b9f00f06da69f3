"""`Deliveries`: take and report deliveries; acknowledge by job id; attempts and steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.databases.batching import Item
from onefold.effects.step_codec import encoded
from onefold.errors import InvalidInput, JobNotFound
from onefold.model import checks
from onefold.model.checks import REASON_BYTES, text
from onefold.model.claim import Holding, encode_result
from onefold.model.delivery import FENCES, Delivery, Ended, deliveries, encode_error
from onefold.model.event import JobEnded
from onefold.model.ids import parse_id
from onefold.model.lifecycle import Event
from onefold.model.timestamps import MICROSECOND, span
from onefold.operations import acks, steps, waiting
from onefold.operations import attempts as history
from onefold.operations.acks import Acknowledgement, Parking
from onefold.operations.endings import Locked
from onefold.operations.statement import Operation, Sql
from onefold.runtime import Procedure, awaited, batch, call, transact
from onefold.worker.deliveries import DeliveryCalls

if TYPE_CHECKING:
    from onefold.databases import Build
    from onefold.model.attempt import Attempt
    from onefold.model.job import Job, Json
    from onefold.model.statistics import Counted
    from onefold.model.step import Step
    from onefold.model.waiting import Waiting

Callback: TypeAlias = Callable[[Sql], Operation[tuple[Ended, Locked]]]

EXCHANGE_BYTES: Final = 64 * 1024

NACK: Final = "Nack"
NACKED: Final = "nacked"
NO_REASON: Final = "the worker reported a failure"


class Deliveries(DeliveryCalls):
    """Deliveries of jobs: many at a time with their fences, or one by the id of its job.

    A call by job id applies to the delivery with the given fence, or to the current one.
    `Ended.status` is `already` if the same was reported before. The calls raise `JobNotFound`,
    `LeaseLost` if the job has another fence by now, and `WrongState` if the delivery has ended in
    another way.
    """

    @call
    def acknowledge(
        self, job_id: str, *, fence: int | None = None, result: Json = None
    ) -> Procedure[Ended]:
        """Report that the work is done, with its result."""
        wanted, under = parse_id(job_id), _fence(fence)
        stored = None if result is None else encode_result(result)
        return self._report(
            wanted,
            lambda sql: acks.acknowledge(
                sql, self._context.tenant, wanted, fence=under, result=stored
            ),
        )

    aacknowledge: Final = awaited(acknowledge)

    @call
    def nack(
        self,
        job_id: str,
        *,
        retryable: bool = True,
        reason: str | None = None,
        fence: int | None = None,
    ) -> Procedure[Ended]:
        """Report a failure: retry after the job's backoff or, if not `retryable`, bury the job."""
        answer = _nack(retryable=retryable, reason=reason)
        return self._answer(job_id, answer, fence)

    anack: Final = awaited(nack)

    @call
    def defer_job(
        self,
        job_id: str,
        *,
        after: timedelta,
        reason: str | None = None,
        fence: int | None = None,
        hold_queue: bool = False,
    ) -> Procedure[Ended]:
        """Run the job again after `after`; no attempt is used.

        With `hold_queue` the whole queue gives no jobs until then, and one job goes first.
        """
        answer = _defer(after, reason, hold_queue=hold_queue)
        return self._answer(job_id, answer, fence)

    adefer_job: Final = awaited(defer_job)

    def _answer(self, job_id: str, answer: Acknowledgement, fence: int | None) -> Procedure[Ended]:
        wanted, under = parse_id(job_id), _fence(fence)
        return self._report(
            wanted,
            lambda sql: acks.say(sql, self._context.tenant, wanted, answer, fence=under),
            deferred=answer.event is Event.DEFER,
        )

    @call
    def heartbeat_job(
        self, job_id: str, *, lease: timedelta | None = None, fence: int | None = None
    ) -> Procedure[Ended]:
        """Extend the lease to `lease` from now; by default to the ack timeout of the queue."""
        wanted, under = parse_id(job_id), _fence(fence)
        micros = None if lease is None else span(lease, "lease", least=MICROSECOND)
        return transact(
            lambda sql: acks.heartbeat(sql, self._context.tenant, wanted, fence=under, lease=micros)
        )

    aheartbeat_job: Final = awaited(heartbeat_job)

    def _report(
        self, job_id: str, callback: Callback, *, deferred: bool = False
    ) -> Procedure[Ended]:
        """Apply the callback, and send the end of the delivery to the listeners."""
        hooks, counts = self._context.hooks, self._context.counts
        ended, locked, job, duration = yield from transact(
            _heard(self._context.tenant, job_id, callback, read=bool(hooks.listeners))
        )
        if ended.status == "accepted":
            outcome = "deferred" if deferred else _OUTCOMES.get(ended.state, "retried")
            taken_at = locked.taken_at or locked.run_at
            waited, ran = taken_at - locked.run_at, locked.now - taken_at
            counts.count(locked.queue, outcome, max(waited, 0), max(ran, 0))
            if job is not None:
                failed = outcome in ("retried", "dead")
                hooks.tell(JobEnded(job, outcome, duration, NACK if failed else None))
        if counts.are_due:
            yield from counts.write()
        return ended

    @call
    def park(
        self,
        delivery: Job | Delivery,
        *,
        ack_timeout: timedelta,
        dead: bool = False,
        exchange: str | None = None,
    ) -> Procedure[Ended]:
        """The receiver has accepted the job: wait `ack_timeout` for its ack.

        Without an ack in time the attempt has failed; with `dead`, the job is buried. `exchange`
        is the response as JSON. The result is `already` if the ack came first.
        """
        (named,) = deliveries([delivery])
        parking = Parking(
            named,
            span(ack_timeout, "ack_timeout", least=MICROSECOND),
            checks.flag(dead, "dead"),
            None if exchange is None else text(exchange, "exchange", longest=EXCHANGE_BYTES),
        )
        return batch(Item(acks.park, parking, "park", named.id))

    apark: Final = awaited(park)

    @call
    def next_ack_timeout(self) -> Procedure[timedelta | None]:
        """The time until the next ack timeout; None if no delivery waits for an ack.

        It is negative if a timeout is over and a rescue is due.
        """
        micros = yield from self._context.shards.read("acks", acks.next_timeout)
        return None if micros is None else micros * MICROSECOND

    anext_ack_timeout: Final = awaited(next_ack_timeout)

    @call
    def attempts(self, job_id: str) -> Procedure[list[Attempt]]:
        """The attempts of a job, the newest last: worker, duration, outcome.

        The last fifty are kept for as long as the job. Deliveries that a worker handed back before
        the start are not included.
        """
        wanted = parse_id(job_id)
        return transact(
            lambda sql: history.attempts(sql, self._context.tenant, wanted), write=False
        )

    aattempts: Final = awaited(attempts)

    @call
    def why(self, job_id: str) -> Procedure[Waiting | None]:
        """Why a job waits: a code, a text and facts. None if it runs or has ended."""
        build = partial(waiting.why, tenant=self._context.tenant, job_id=parse_id(job_id))
        return transact(build, write=False)

    awhy: Final = awaited(why)

    @call
    def steps(
        self, job_id: str, *, results: bool | Callable[[Step], Any] = True
    ) -> Procedure[list[Step]]:
        """The steps of a job, in the order in which they began.

        Results may be private: `results=False` leaves them out. A function as `results` receives
        each step and returns what to show.
        """
        if not isinstance(results, bool) and not callable(results):
            raise InvalidInput("results", f"must be True, False or a function, got {results!r}")
        wanted, shows = parse_id(job_id), results is not False
        found = yield from transact(
            lambda sql: steps.look(sql, wanted, self._context.tenant, results=shows), write=False
        )
        if isinstance(results, bool):
            return found
        return [msgspec.structs.replace(step, result=results(step)) for step in found]

    asteps: Final = awaited(steps)

    @call
    def settle_step(self, job_id: str, step: str, *, result: Any = None) -> Procedure[bool]:
        """Mark a step as done with this result, as an operator. False if the step has ended.

        `step` is its label: `charge`, the second one `charge#2`, one with a key `charge[o-7]`.
        Replay the job afterwards: it continues after the step.
        """
        return self._force(job_id, step, encoded(result))

    asettle_step: Final = awaited(settle_step)

    @call
    def release_step(self, job_id: str, step: str) -> Procedure[bool]:
        """Mark a step as not done, as an operator: it may run. False if the step has ended.

        Replay the job afterwards: it begins the step again.
        """
        return self._force(job_id, step, None)

    arelease_step: Final = awaited(release_step)

    def _force(self, job_id: str, label: str, value: str | None) -> Procedure[bool]:
        wanted, state = parse_id(job_id), Holding.FREE if value is None else Holding.SETTLED
        return transact(
            lambda sql: steps.force(
                sql, wanted, self._context.tenant, label=label, state=state, value=value
            )
        )


_OUTCOMES: Final[dict[str | None, Counted]] = {"completed": "completed", "dead": "dead"}


def _heard(
    tenant: str, job_id: str, callback: Callback, *, read: bool
) -> Build[tuple[Ended, Locked, Job | None, timedelta]]:
    def build(sql: Sql) -> Operation[tuple[Ended, Locked, Job | None, timedelta]]:
        ended, locked = yield from callback(sql)
        if not read:
            return ended, locked, None, timedelta(0)
        try:
            job, attempts = yield from history.with_attempts(sql, tenant, job_id)
        except JobNotFound:
            return ended, locked, None, timedelta(0)
        duration = next((one.duration for one in attempts if one.fence == ended.fence), None)
        return ended, locked, job, duration or timedelta(0)

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
