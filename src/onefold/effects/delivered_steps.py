"""Steps of a delivery whose handler runs elsewhere, and reports them by requests.

1. Nothing but the stored rows is remembered between two requests. The fence identifies the
   delivery, and `attempt`, made by the client for each begin, the try: a request that is sent again
   finds its own step.
2. A request for a delivery that has ended raises `LeaseLost`, and writes nothing. Only a request
   that is sent again receives the same response as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onefold.effects.step_codec import encoded, step_failed
from onefold.effects.step_log import StepLog
from onefold.effects.step_store import JobSteps, StepRequest
from onefold.errors import JobNotFound, LeaseLost
from onefold.model.claim import Holding
from onefold.model.delivery import Delivery, encode_error
from onefold.model.ids import parse_id
from onefold.model.step import Failure, StepName, StepRow, step_name
from onefold.operations import jobs, steps
from onefold.runtime import Procedure, transact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.model.claim import Takeover
    from onefold.model.job import Job
    from onefold.operations.statement import Operation, Sql


class RemoteStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the request of a delivery."""

    tenant: str
    job_id: str
    fence: int
    name: str
    key: str | None = None
    occurrence: int = 1
    attempt: str | None = None
    """Identifies the try, made by the client; None if at most one try is under way."""
    fingerprint: str | None = None


def find(step: RemoteStep) -> Procedure[DeliveredStep]:
    """The step and its job, as they are stored."""
    return (yield from transact(lambda sql: _find(sql, step), write=False))


def _find(sql: Sql, step: RemoteStep) -> Operation[DeliveredStep]:
    job_id = parse_id(step.job_id)
    found = yield from jobs.get(sql, step.tenant, [job_id])
    if job_id not in found:
        raise JobNotFound(job_id)
    rows = yield from steps.find(sql, job_id, step.tenant)
    return DeliveredStep(step, found[job_id], rows)


class DeliveredStep:
    """A step of a delivery, as a request finds it."""

    def __init__(self, step: RemoteStep, job: Job, rows: list[StepRow]) -> None:
        """`rows` are the stored steps of the job."""
        backend = JobSteps(
            Delivery(job.id, step.fence), job.tenant, job.generation, only_running=True
        )
        stored = {row.key: row for row in backend.adopt(rows)}
        self.name: StepName = step_name(
            step.name, key=step.key, occurrence=step.occurrence, generation=job.generation
        )
        self.third_party_key: str = backend.third_party_key(self.name)
        self._row = stored.get(self.name.text)
        self._log = StepLog(backend, lambda: None)
        self._job = job
        self._fence = step.fence
        self._attempt = None if step.attempt is None else parse_id(step.attempt, "attempt")
        known = None if self._row is None else self._row.fingerprint
        self._request = StepRequest(self.name, step.fingerprint or known)
        self._log.refuse_reused(self._request, self._row)

    def begin(self, *, takeover: Takeover, verified: bool = False) -> Procedure[StepRow]:
        """Begin it, unless it is over. `verified` means that a vanished try did nothing."""
        self._check_running()
        row, request = self._row, msgspec.structs.replace(self._request, takeover=takeover)
        if row is not None and row.must_not_rerun and row.notes.failure is not None:
            # Its try has reported that the outcome is unknown.
            self._log.give_up(request, row)
        if row is None or not (row.is_settled or (row.is_held and row.owner == self._attempt)):
            row = yield from self._log.begin(request, row, verified=verified, owner=self._attempt)
        if row.is_settled and row.notes.failure is not None:
            raise step_failed(row.notes.failure, self.name.label)
        return row

    def finish(self, result: Any) -> Procedure[StepRow]:
        """Store the final result; a step that was not begun is stored at once."""
        value = encoded(result)
        row = self._row
        if row is not None and row.is_settled:
            if not self._is_mine(row) or row.notes.failure is not None:
                raise self._lost()
            return row
        request, row = yield from self._ending(is_unsafe=False)
        return (yield from self._log.finish(request, row, value))

    def fail(
        self, error: Mapping[str, Any], *, final: bool, unknown: bool | None
    ) -> Procedure[Holding]:
        """Store its failure: final, to be tried again, or with an unknown outcome.

        If `unknown` is None, it is true for a step that was begun `unsafe`.
        """
        text = encode_error(error)
        assert text is not None
        failure, row = Failure(msgspec.Raw(text.encode())), self._row
        if row is not None and row.is_settled:
            if not self._is_mine(row) or row.notes.failure is None:
                raise self._lost()
            return Holding.SETTLED
        keeps = unknown is True or (unknown is None and row is not None and row.must_not_rerun)
        state = Holding.SETTLED if final else Holding.HELD if keeps else Holding.FREE
        if not self._has_stored(state, failure):
            request, row = yield from self._ending(is_unsafe=state is Holding.HELD)
            yield from self._log.fail(request, row, failure, state)
        return state

    def _ending(self, *, is_unsafe: bool) -> Procedure[tuple[StepRequest, StepRow]]:
        """The step, begun by this try, which is about to end."""
        self._check_running()
        row = self._row
        takeover: Takeover = "refuse" if is_unsafe or (row and row.must_not_rerun) else "rerun"
        request = msgspec.structs.replace(self._request, takeover=takeover)
        if row is None or not row.is_held:
            row = yield from self._log.begin(request, row, owner=self._attempt)
        elif not self._is_mine(row):
            raise self._lost()
        return request, row

    def _has_stored(self, state: Holding, failure: Failure) -> bool:
        """True if this try has written the same before, and only the response was lost."""
        row = self._row
        if row is None or row.state != state or not self._is_mine(row):
            return False
        return state is Holding.FREE or row.notes.failure == failure

    def _is_mine(self, row: StepRow) -> bool:
        return row.fence == self._fence and self._attempt in (None, row.owner)

    def _check_running(self) -> None:
        if self._job.state not in ("running", "awaiting") or self._job.fence != self._fence:
            raise LeaseLost(f"job {self._job.id}", fence=self._fence)

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"the step {self.name.label!r}", fence=self._fence)
