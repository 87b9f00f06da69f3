"""Where steps are stored: the interface, and the steps of a delivery and of a claim."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import msgspec

from onefold.errors import UsageError
from onefold.model.claim import Holding, Takeover
from onefold.model.ids import new_id
from onefold.model.step import NOTHING, Failure, Notes, StepName, StepRow, read_name
from onefold.operations import steps
from onefold.operations.steps import StepWrite
from onefold.runtime import Procedure, transact

if TYPE_CHECKING:
    from onefold.model.claim import Claim
    from onefold.model.delivery import Delivery
    from onefold.operations.statement import Operation, Sql


class StepRequest(msgspec.Struct, frozen=True):
    """A step that a handler requests."""

    name: StepName
    fingerprint: str | None = None
    takeover: Takeover = "rerun"

    @property
    def is_unsafe(self) -> bool:
        """True if it must not be repeated."""
        return self.takeover == "refuse"


class StepBackend(Protocol):
    """Stores the steps of one attempt at a job or a request: in the database, or over HTTP.

    A write returns the stored row, which may be another attempt's; `LeaseLost` if another attempt
    has the job or the key.
    """

    @property
    def fence(self) -> int:
        """Of this attempt: a step with another fence belongs to another attempt."""
        ...

    @property
    def generation(self) -> int:
        """Steps of other generations are ignored."""
        ...

    @property
    def compares(self) -> bool:
        """True if a begin fails when the step has changed since it was read."""
        ...

    def read(self) -> Procedure[list[StepRow]]:
        """The steps that earlier attempts have stored."""
        ...

    def begin(
        self, request: StepRequest, owner: str, seen: StepRow | None, *, verified: bool
    ) -> Procedure[StepRow]:
        """Begin a step; `verified` if it is known that its last try did nothing."""
        ...

    def finish(self, request: StepRequest, row: StepRow, value: str) -> Procedure[StepRow]:
        """Store the result of a step, which is JSON text."""
        ...

    def fail(
        self, request: StepRequest, row: StepRow, failure: Failure, state: Holding
    ) -> Procedure[StepRow]:
        """Store a failure: free for another try, held with an unknown outcome, settled for good."""
        ...

    def third_party_key(self, name: StepName) -> str:
        """The key of a step for a third party: the same in each attempt."""
        ...


class DatabaseSteps(ABC):
    """Steps in the database. It is a `StepBackend`."""

    compares: bool = True

    def __init__(self, *, fence: int, generation: int, is_new: bool) -> None:
        """`is_new` if no earlier attempt can have stored steps."""
        self.fence: int = fence
        self.generation: int = generation
        self._is_new = is_new
        self._settled = 0
        self._mutex = threading.Lock()

    @abstractmethod
    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Write a step; `LeaseLost` if another attempt has the job or the key."""

    @abstractmethod
    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """All steps, or the one with this key."""

    @abstractmethod
    def third_party_key(self, name: StepName) -> str:
        """The key of a step for a third party: the same in each attempt."""

    def read(self) -> Procedure[list[StepRow]]:
        """The steps that earlier attempts have stored."""
        if self._is_new:
            return []
        found = yield from transact(self.find, write=False)
        return self.adopt(found)

    def adopt(self, found: list[StepRow]) -> list[StepRow]:
        """The rows of this generation, whose order is continued."""
        mine = [row for row in found if read_name(row.key).generation == self.generation]
        places = [row.notes.place for row in mine if row.is_settled]
        self._settled = max(self._settled, *places, 0)
        return mine

    def begin(
        self, request: StepRequest, owner: str, seen: StepRow | None, *, verified: bool
    ) -> Procedure[StepRow]:
        """Begin a step. The caller has checked that it may begin."""
        del verified
        notes = Notes(
            1 if seen is None else seen.notes.attempts + 1,
            begun=self._settled,
            # For an unsafe step that is held, a failure means that the outcome is unknown.
            failure=None if seen is None or request.is_unsafe else seen.notes.failure,
        )
        return self._store(request, owner, Holding.HELD, notes, seen)

    def finish(self, request: StepRequest, row: StepRow, value: str) -> Procedure[StepRow]:
        """Store the result of a step, which is JSON text."""
        notes = self._over(row.notes, value)
        return self._store(request, row.owner, Holding.SETTLED, notes, row)

    def fail(
        self, request: StepRequest, row: StepRow, failure: Failure, state: Holding
    ) -> Procedure[StepRow]:
        """Store a failure: free for another try, held with an unknown outcome, settled for good."""
        notes = self._over(row.notes) if state is Holding.SETTLED else row.notes
        notes = msgspec.structs.replace(notes, failure=failure)
        return self._store(request, row.owner, state, notes, row)

    def record(self, request: StepRequest, seen: StepRow | None, value: str) -> StepWrite:
        """A step that is over as soon as it begins."""
        attempts = 1 if seen is None else seen.notes.attempts + 1
        notes = self._over(Notes(attempts, begun=self._settled), value)
        return self._wanted(request, new_id(), Holding.SETTLED, notes, seen)

    def store(self, request: StepRequest, seen: StepRow | None, value: str) -> Procedure[StepRow]:
        """Write a step that has no effect."""
        wanted = self.record(request, seen, value)
        return (yield from transact(lambda sql: self.write(sql, wanted)))

    def has_stored(self, sql: Sql, wanted: StepWrite) -> Operation[bool]:
        """True if this write is stored."""
        found = yield from self.find(sql, key=wanted.key)
        return [row.owner for row in found] == [wanted.owner]

    def _over(self, notes: Notes, value: str | None = None) -> Notes:
        """The notes of a step that has ended, with its place in the order of ends."""
        with self._mutex:
            self._settled += 1
            place = self._settled
        raw = NOTHING if value is None else msgspec.Raw(value.encode())
        return msgspec.structs.replace(notes, place=place, value=raw, failure=None)

    def _wanted(
        self, request: StepRequest, owner: str, state: Holding, notes: Notes, seen: StepRow | None
    ) -> StepWrite:
        # A released step may be requested with other arguments.
        fingerprint = None if state is Holding.FREE else request.fingerprint
        return StepWrite(
            request.name.text, owner, state, notes, request.takeover, fingerprint, seen
        )

    def _store(
        self, request: StepRequest, owner: str, state: Holding, notes: Notes, seen: StepRow | None
    ) -> Procedure[StepRow]:
        wanted = self._wanted(request, owner, state, notes, seen)
        return (yield from transact(lambda sql: self.write(sql, wanted)))


class JobSteps(DatabaseSteps):
    """The steps of a job, for one delivery of it."""

    def __init__(
        self, delivery: Delivery, tenant: str, generation: int, *, only_running: bool = False
    ) -> None:
        """`only_running`: after the end of the delivery, no end of a step is stored."""
        # No steps can be stored before the first delivery.
        super().__init__(fence=delivery.fence, generation=generation, is_new=delivery.fence <= 1)
        self._delivery = delivery
        self._tenant = tenant
        self._only_running = only_running

    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Write a step; `LeaseLost` if another delivery has the job."""
        return steps.write(
            sql, self._delivery, self._tenant, wanted, only_running=self._only_running
        )

    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """All steps of the job, or the one with this key."""
        return steps.find(sql, self._delivery.id, self._tenant, key=key)

    def third_party_key(self, name: StepName) -> str:
        """The same in each attempt of the job, and new after a fresh replay."""
        return name.key_of_job(self._delivery.id)


class ClaimSteps(DatabaseSteps):
    """The steps of a claim, for the attempt that holds it.

    A request whose step fails has failed. So a safe step is written once, when it has ended; only
    an unsafe one is written before it begins, because it may have happened.
    """

    def __init__(self, claim: Claim) -> None:
        if claim.guarantee == "exactly once":
            raise UsageError(
                "Steps are for requests with a lease. Here the key is claimed in the handler's own"
                " transaction: a rollback does not undo effects outside of it, and deletes the"
                " steps that are stored in it. Remove `transaction`, and give `takeover`."
            )
        # The id is kept by a resume, and new with a rerun: no other steps count.
        super().__init__(fence=claim.fence, generation=UUID(claim.id).int, is_new=not claim.resumed)
        self._claim = claim
        self._stored: dict[str, StepRow] = {}

    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Write a step; `LeaseLost` if the claim is no longer held by this attempt."""
        return steps.write_claim_step(sql, self._claim, wanted)

    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """All steps with the claim's key, or the one with this key of its own."""
        return steps.find_claim_steps(sql, self._claim.key, key=key)

    def third_party_key(self, name: StepName) -> str:
        """The same over every attempt with the key, a rerun included."""
        return self._claim.key.derived(name.label)

    def adopt(self, found: list[StepRow]) -> list[StepRow]:
        """The rows of this generation, whose order is continued."""
        mine = super().adopt(found)
        # Another task may have read them before, and written one since.
        self._stored = {row.key: row for row in mine} | self._stored
        return mine

    def _wanted(
        self, request: StepRequest, owner: str, state: Holding, notes: Notes, seen: StepRow | None
    ) -> StepWrite:
        del seen  # it may be in memory alone
        return super()._wanted(request, owner, state, notes, self._stored.get(request.name.text))

    def _store(
        self, request: StepRequest, owner: str, state: Holding, notes: Notes, seen: StepRow | None
    ) -> Procedure[StepRow]:
        if not request.is_unsafe and state is not Holding.SETTLED:
            return self._wanted(request, owner, state, notes, seen).unstored(self.fence)
        row = yield from super()._store(request, owner, state, notes, seen)
        self._stored[row.key] = row
        return row


class UnstoredSteps(DatabaseSteps):
    """Steps of a request without a key: there is no retry, so nothing is stored.

    They need no database: a request may run unprotected because it is unavailable.
    """

    def __init__(self, name: str) -> None:
        """`name` identifies this attempt."""
        super().__init__(fence=0, generation=0, is_new=True)
        self._name = name

    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Nothing is written."""
        del sql
        yield from ()
        return wanted.unstored(self.fence)

    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """There are none."""
        del sql, key
        yield from ()
        return []

    def third_party_key(self, name: StepName) -> str:
        """A key of this attempt alone."""
        return f"{self._name}:{name.label}"

    def _store(
        self, request: StepRequest, owner: str, state: Holding, notes: Notes, seen: StepRow | None
    ) -> Procedure[StepRow]:
        yield from ()
        return self._wanted(request, owner, state, notes, seen).unstored(self.fence)
