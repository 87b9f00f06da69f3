"""`Run`: one delivery of a job, as its handler sees it.

@onefold.job
def charge(run: Run, order_id: int) -> None:
    receipt = run.step("charge", stripe_charge, order_id, idempotency_key=run.key("charge"))
    with run.transaction() as tx:
        tx.execute("insert into payment …", …)
"""

from __future__ import annotations

import logging
import random
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, overload
from uuid import UUID, uuid4

from onefold.databases.handler_transaction import begun_here
from onefold.effects.claims import JobClaims
from onefold.effects.lock import DatabaseLocks, Lock, lock_key
from onefold.effects.once import OnceContext
from onefold.effects.run_transaction import RunTransaction
from onefold.effects.step_codec import encoded
from onefold.effects.step_log import StepLog
from onefold.effects.step_store import JobSteps, StepRequest
from onefold.effects.steps import Stepping, step_inside
from onefold.errors import Busy, LeaseLost, UsageError
from onefold.model.claim import JOINED_RETRY, claim_key
from onefold.model.delivery import Delivery
from onefold.model.json_text import decode_payload
from onefold.model.timestamps import from_micros, span
from onefold.operations import deliveries
from onefold.runtime import Calls, Procedure, awaited, call, transact

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Unpack

    from onefold.app.context import Context
    from onefold.app.onefold import Within
    from onefold.effects.once import AttemptOptions, OnceClaim, OnceOptions
    from onefold.model.job import Job
    from onefold.model.step import StepRow

_LOGGER: Final = logging.getLogger("onefold.run")
_UNSET: Final[Any] = object()


class Run(Stepping, Calls):
    """One delivery of a job: what its handler needs to do each effect once."""

    def __init__(
        self,
        context: Context,
        job: Job,
        *,
        lease: timedelta,
        worker: str,
        deadline: datetime | None = None,
    ) -> None:
        self.job: Job = job
        self.worker: str = worker
        self.deadline: datetime | None = deadline
        """When the handler is stopped; None if there is no limit."""
        self.result: Any = _UNSET
        """Set it inside `transaction()` to store it as the job's result."""
        self._context = context
        self._runtime = context.runtime
        self._lease = lease
        self._lost = False
        self._completing = False
        self._completed = False
        self._options = {}

    # A run is created for every job, and most use few of its parts.

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the job's id, its kind and the attempt."""
        job = self.job
        return _RunLog(_LOGGER, {"job_id": job.id, "kind": job.kind, "attempt": job.attempt})

    @property
    def _log(self) -> StepLog:
        return self._step_log

    @cached_property
    def _step_log(self) -> StepLog:
        return StepLog(self._steps, self.lose)

    @cached_property
    def _steps(self) -> JobSteps:
        job = self.job
        return JobSteps(Delivery(job.id, job.fence), job.tenant, job.generation)

    @cached_property
    def _claims(self) -> JobClaims:
        return JobClaims(self._context, self.job, self.check, self.lose)

    @property
    def id(self) -> str:
        """The job's id, the same in each attempt and replay."""
        return self.job.id

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.job.attempt

    @property
    def fence(self) -> int:
        """The number of this delivery, strictly growing per job. Send it to what you write to."""
        return self.job.fence

    @property
    def tick(self) -> datetime | None:
        """The moment of a schedule that the job was enqueued for."""
        return self.job.tick

    @property
    def lost(self) -> bool:
        """True if the job was cancelled or belongs to another delivery."""
        return self._lost

    @property
    def completed(self) -> bool:
        """True after the commit of `transaction()`: the job is completed, whatever happens next."""
        return self._completed

    def check(self) -> None:
        """Raise `LeaseLost` if the job is lost: call it before an effect of your own."""
        if self.lost:
            raise LeaseLost(f"job {self.job.id}", fence=self.job.fence)
        if self._completed:
            raise UsageError(
                f"Job {self.job.id} was completed by run.transaction(), so it can have no more"
                " effects of its own. Do this before, or inside of the transaction."
            )

    def lose(self) -> None:
        """Note that the database has rejected this delivery: the job is lost."""
        self._lost = True

    def mark_lost(self) -> bool:
        """Note that the lease has ended: every further effect is rejected.

        Returns False if the run has completed its job itself, which ends the lease, too.
        """
        if self._completing or self._completed:
            return False
        self._lost = True
        return True

    def transaction(self, target: object = None) -> RunTransaction:
        """The handler's rows and the job's completion in one commit: exactly once.

        Returns a connection of Onefold: psycopg's, or sqlite3's (awaited: with the same
        `execute`). `target` is a connection of yours to the same database without an open
        transaction, or a session, an engine, a pool: psycopg, asyncpg, sqlite3, aiosqlite,
        SQLAlchemy, Django.
        """
        if (inside := step_inside(self._log)) is not None:
            raise UsageError(
                f"The step {inside.label!r} is running, and would be completed with its job before"
                " it has ended. Begin the transaction outside of the step."
            )
        return RunTransaction(self._context, Delivery(self.job.id, self.job.fence), self, target)

    def within(self) -> Within:
        """Onefold inside the transaction that is open here: `run.within().enqueue(…)`.

        For the block of `transaction()` and the function of `transact()`: a job that is enqueued
        here is committed with the handler's rows, or not at all.
        """
        begun = begun_here(self._context.database)
        if begun is None:
            raise UsageError(
                "No transaction of this run is open here. Call run.within() inside of the block of"
                " run.transaction(), or of the function of run.transact()."
            )
        return self._context.for_tenant(self.job.tenant).within(begun.borrowed)

    def begin_completing(self) -> str | None:
        """Called before the transaction completes the job; returns the result to store."""
        self._completing = True
        return None if self.result is _UNSET else encoded(self.result)

    def end_completing(self, *, completed: bool) -> None:
        """Called after the transaction was committed, or failed."""
        # In this order: a heartbeat in another thread may find in between that the lease is over.
        self._completed = completed
        self._completing = False

    @overload
    def once(
        self,
        key: str | Callable[..., str],
        *,
        busy: Literal["raise"] = "raise",
        **options: Unpack[AttemptOptions],
    ) -> OnceContext[OnceClaim]: ...
    @overload
    def once(
        self,
        key: str | Callable[..., str],
        *,
        busy: Literal["skip"],
        **options: Unpack[AttemptOptions],
    ) -> OnceContext[OnceClaim | None]: ...
    def once(
        self, key: str | Callable[..., str], **options: Unpack[OnceOptions]
    ) -> OnceContext[Any]:
        """Do something at most once for this job: `with run.once("mail") as claim: …`.

        As `onefold.once`, for keys of this job only. An exception leaves the outcome unknown,
        unless it is `NotDone` or declared by `not_done=`.
        """
        return OnceContext(self._claims, self.job.id, key, options)

    def lock(
        self, name: str, *, ttl: timedelta = timedelta(seconds=30), wait: timedelta | None = None
    ) -> Lock:
        """`onefold.lock`; it counts as lost if the job is lost."""
        self.check()
        key = claim_key(self.job.tenant, "lock", "", lock_key(name))
        return Lock(DatabaseLocks(self._context), key, ttl, wait, is_lost=lambda: self._lost)

    @call
    def heartbeat(self) -> Procedure[datetime]:
        """Extend the job's lease now; returns its end. `LeaseLost` if the job is lost."""
        self.check()
        delivery = Delivery(self.job.id, self.job.fence)
        lease = span(self._lease, "lease")
        (beat,) = yield from transact(
            lambda sql: deliveries.heartbeat(sql, [delivery], lease=lease)
        )
        if beat.lease_until is None:
            self.lose()
            raise LeaseLost(f"job {self.job.id}", fence=self.job.fence)
        return beat.lease_until

    aheartbeat: Final = awaited(heartbeat)

    @call
    def now(self) -> Procedure[datetime]:
        """The time, recorded: a rerun receives the same value."""
        micros: int = yield from self._recorded("now()", self._context.now)
        return from_micros(micros)

    anow: Final = awaited(now)

    @call
    def uuid(self) -> Procedure[UUID]:
        """A random UUID, recorded: a rerun receives the same value."""
        return UUID((yield from self._recorded("uuid()", lambda: str(uuid4()))))

    auuid: Final = awaited(uuid)

    @call
    def random(self) -> Procedure[float]:
        """A random number from 0 to 1, recorded: a rerun receives the same value."""
        number: float = yield from self._recorded("random()", random.random)
        return number

    arandom: Final = awaited(random)

    def _recorded(self, name: str, make: Callable[[], Any]) -> Procedure[Any]:
        """Store a step without an effect: it is over as soon as it begins."""
        self.check()
        if step_inside(self._log) is not None:
            return make()
        request = StepRequest(self._log.name(name, None))
        row: StepRow | None = yield from self._log.find(request)
        if row is None or not row.is_settled:
            value = encoded(make())
            row = yield from self._log.kept(self._steps.store(request, row, value))
            if not row.is_settled:
                raise Busy(key=name, retry_after=JOINED_RETRY)
        return decode_payload(row.notes.value_text)


class _RunLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields to each record."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """The fields of the job, and those of the call."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
