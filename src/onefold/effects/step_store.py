"""Where steps are stored: for a job, for a request with a key, and for handlers elsewhere.

1. A remote handler begins and ends a step by requests. Nothing but the stored rows is remembered
   between two of them. The fence identifies the delivery, and `attempt`, made by the client for
   each begin, the try: a request that is sent again finds its own step.
2. A request for a delivery that has ended raises `LeaseLost`, and writes nothing. Only a request
   that is sent again receives the same response as before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from onefold.effects.step_codec import encoded
from onefold.errors import Busy, JobNotFound, KeyReused, LeaseLost, OutcomeUnknown, StepFailed
from onefold.model.claim import JOINED_RETRY, Holding
from onefold.model.delivery import Delivery, encode_error
from onefold.model.ids import new_id, parse_id
from onefold.model.json_text import decode_payload
from onefold.model.step import NOTHING, Failure, Notes, StepName, StepRow, read_name, step_name
from onefold.operations import deliveries, jobs, steps
from onefold.runtime import Procedure, Transact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.model.claim import Takeover
    from onefold.model.job import Job
    from onefold.operations.statement import Operation, Sql
    from onefold.operations.steps import StepWrite


class Book(ABC):
    """The steps of a job or a request, which several attempts may run one after the other."""

    fence: int
    """Of this attempt: a step with another fence belongs to another attempt."""
    generation: int
    """Of the steps that count: steps of other generations are ignored."""
    is_new: bool
    """True if no earlier attempt can have stored steps."""

    @abstractmethod
    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Write a step; `LeaseLost` if another attempt has the job or the key."""

    @abstractmethod
    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """All steps, or the one with this key."""

    @abstractmethod
    def third_party_key(self, name: StepName) -> str:
        """The key of a step for a third party: the same in each attempt."""


class JobBook(Book):
    """The steps of a job, for one delivery of it."""

    def __init__(self, job: Job) -> None:
        """Nothing is read yet."""
        self.fence: int = job.fence
        self.generation: int = job.generation
        # No steps can be stored before the first delivery.
        self.is_new: bool = job.fence <= 1
        self._job = job

    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Write a step; `LeaseLost` if another delivery has the job."""
        delivery = Delivery(self._job.id, self.fence)
        return (yield from steps.write(sql, delivery, self._job.tenant, wanted))

    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """All steps of the job, or the one with this key."""
        return (yield from steps.find(sql, self._job.id, self._job.tenant, key=key))

    def third_party_key(self, name: StepName) -> str:
        """The same in each attempt of the job, and new after a fresh replay."""
        generation = f".{self.generation}" if self.generation else ""
        return f"{self._job.id}{generation}:{name.label}"


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


class StepStart(msgspec.Struct, frozen=True):
    """A step that this attempt has to run now; or one that is over, with its result."""

    row: StepRow
    name: StepName
    third_party_key: str
    """The same in each attempt of the job: for the system that the step calls."""

    @property
    def is_over(self) -> bool:
        """True if there is nothing to do."""
        return self.row.is_settled

    @property
    def result(self) -> Any:
        """The stored result."""
        return decode_payload(self.row.notes.value_text)


def begin(asked: RemoteStep, *, takeover: Takeover, verified: bool) -> Procedure[StepStart]:
    """Begin a step, or return its result. `verified` means that a vanished try did nothing."""
    owner = new_id() if asked.attempt is None else parse_id(asked.attempt, "attempt")

    def build(sql: Sql) -> Operation[StepStart]:
        place = yield from _found(sql, asked)
        yield from place.hold(sql)
        row = place.row
        if row is not None and not row.is_settled and row.owner != owner:
            place.refuse_at_work()
            if row.must_not_rerun and not verified:
                raise OutcomeUnknown(key=place.name.label)
        if row is None or not (row.is_settled or (row.is_held and row.owner == owner)):
            notes = Notes(
                1 if row is None else row.notes.attempts + 1,
                begun=place.settled,
                # For an unsafe step that is held, a failure means that the outcome is unknown.
                failure=None if row is None or takeover == "refuse" else row.notes.failure,
            )
            wanted = place.wanted(owner, Holding.HELD, notes, takeover)
            row = yield from place.write(sql, wanted)
            if row.owner != owner and not row.is_settled:
                raise Busy(key=place.name.label, retry_after=JOINED_RETRY)
        if row.is_settled and row.notes.failure is not None:
            raise _failed(place.name, row.notes.failure)
        return StepStart(row, place.name, place.third_party_key)

    begun: StepStart = yield Transact(build)
    return begun


def finish(asked: RemoteStep, result: Any) -> Procedure[StepStart]:
    """Store the final result of a step; a step that was not begun is stored at once."""
    value = msgspec.Raw(encoded(result).encode())

    def build(sql: Sql) -> Operation[StepStart]:
        place = yield from _found(sql, asked)
        row = place.row
        if row is None or not row.is_settled:
            yield from place.hold(sql)
            wanted = place.ending(Holding.SETTLED, value=value, failure=None)
            row = place.mine((yield from place.write(sql, wanted)), wanted)
        elif not place.speaks_for(row) or row.notes.failure is not None:
            raise place.lost()
        return StepStart(row, place.name, place.third_party_key)

    begun: StepStart = yield Transact(build)
    return begun


def fail(
    asked: RemoteStep, error: Mapping[str, Any], *, final: bool, unknown: bool | None
) -> Procedure[Holding]:
    """Store the failure of a step: final, to be tried again, or with an unknown outcome.

    If `unknown` is None, it is true for a step that was begun `unsafe`.
    """
    told = encode_error(error)
    assert told is not None
    failure = Failure(msgspec.Raw(told.encode()))

    def build(sql: Sql) -> Operation[Holding]:
        place = yield from _found(sql, asked)
        row = place.row
        if row is not None and row.is_settled:
            if not place.speaks_for(row) or row.notes.failure is None:
                raise place.lost()
            return Holding.SETTLED
        keeps = unknown is True or (unknown is None and row is not None and row.must_not_rerun)
        state = Holding.SETTLED if final else Holding.HELD if keeps else Holding.FREE
        if place.has_heard(state, failure):
            return state
        yield from place.hold(sql)
        wanted = place.ending(state, value=NOTHING, failure=failure)
        place.mine((yield from place.write(sql, wanted)), wanted)
        return state

    stored: Holding = yield Transact(build)
    return stored


def _failed(name: StepName, failure: Failure) -> StepFailed:
    told: dict[str, Any] = decode_payload(bytes(failure.error).decode())
    return StepFailed(
        step=name.label, error_type=str(told.get("type")), reason=str(told.get("message"))
    )


def _found(sql: Sql, asked: RemoteStep) -> Operation[_Place]:
    """The stored step, and the job that it belongs to."""
    job_id = parse_id(asked.job_id)
    found = yield from jobs.get(sql, asked.tenant, [job_id])
    job = found.get(job_id)
    if job is None:
        raise JobNotFound(job_id)
    rows = yield from steps.find(sql, job_id, asked.tenant)
    return _Place(asked, job, rows)


class _Place:
    """A step among those of its job, in the job's current generation."""

    def __init__(self, asked: RemoteStep, job: Job, rows: list[StepRow]) -> None:
        generation = job.generation
        self.name: StepName = step_name(
            asked.name, key=asked.key, occurrence=asked.occurrence, generation=generation
        )
        mine = [row for row in rows if read_name(row.key).generation == generation]
        self.row: StepRow | None = next((row for row in mine if row.key == self.name.text), None)
        over = (row.notes.place for row in mine if row.is_settled)
        self.settled: int = max(over, default=0)
        """How many steps of the job are over."""
        self.third_party_key: str = JobBook(job).third_party_key(self.name)
        self._asked = asked
        self._job = job
        self._refuse_reused()

    def _refuse_reused(self) -> None:
        row, given = self.row, self._asked.fingerprint
        known = None if row is None or row.state == Holding.FREE else row.fingerprint
        if known is not None and given not in (None, known):
            raise KeyReused(key=self.name.label)

    def hold(self, sql: Sql) -> Operation[None]:
        """Lock the job until the commit; `LeaseLost` if the delivery has ended."""
        yield from deliveries.hold(sql, Delivery(self._job.id, self._asked.fence))

    def refuse_at_work(self) -> None:
        """Raise if another try of the same delivery has begun the step, and has not ended."""
        row = self.row
        if row is not None and row.is_held and row.fence == self._asked.fence:
            if row.notes.failure is not None and row.must_not_rerun:
                # That try has reported that its outcome is unknown.
                return
            raise Busy(key=self.name.label, retry_after=JOINED_RETRY)

    def speaks_for(self, row: StepRow) -> bool:
        """True if this try wrote the step."""
        return row.fence == self._asked.fence and self._asked.attempt in (None, row.owner)

    def has_heard(self, state: Holding, failure: Failure) -> bool:
        """True if this try has written the same before, and only the response was lost."""
        row = self.row
        if row is None or row.state != state or not self.speaks_for(row):
            return False
        return state is Holding.FREE or row.notes.failure == failure

    def lost(self) -> LeaseLost:
        """The error for a step of another attempt."""
        return LeaseLost(f"the step {self.name.label!r}", fence=self._asked.fence)

    def ending(
        self, state: Holding, *, value: msgspec.Raw, failure: Failure | None
    ) -> steps.StepWrite:
        """The end of a step that this try has begun, or that was not begun."""
        row = self.row
        if row is not None and row.is_held and not self.speaks_for(row):
            raise self.lost()
        notes = Notes(begun=self.settled) if row is None else row.notes
        owner = row.owner if row is not None and row.is_held else self._asked.attempt or new_id()
        place = self.settled + 1 if state is Holding.SETTLED else 0
        notes = msgspec.structs.replace(notes, place=place, value=value, failure=failure)
        is_unsafe = state is Holding.HELD or (row is not None and row.must_not_rerun)
        takeover: Takeover = "refuse" if is_unsafe else "rerun"
        return self.wanted(owner, state, notes, takeover)

    def wanted(
        self, owner: str, state: Holding, notes: Notes, takeover: Takeover
    ) -> steps.StepWrite:
        """The step to write."""
        known = None if self.row is None else self.row.fingerprint
        return steps.StepWrite(
            key=self.name.text,
            owner=owner,
            state=state,
            notes=notes,
            takeover=takeover,
            # A released step may be requested with other arguments.
            fingerprint=None if state is Holding.FREE else self._asked.fingerprint or known,
            seen=self.row,
        )

    def write(self, sql: Sql, wanted: steps.StepWrite) -> Operation[StepRow]:
        """Write it; `LeaseLost` if another delivery has the job."""
        delivery = Delivery(self._job.id, self._asked.fence)
        return (yield from steps.write(sql, delivery, self._job.tenant, wanted))

    def mine(self, now: StepRow, wanted: steps.StepWrite) -> StepRow:
        """The written step; `LeaseLost` if another try has written it."""
        if (now.owner, now.state) != (wanted.owner, wanted.state):
            raise self.lost()
        return now
