"""`once.step` and `once.transact`: steps that count for the next attempt at a request.

A request whose step fails has failed. So a safe step is written once, when it has ended; only an
`unsafe` one is written before it begins, because it may have happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from onefold.effects.step_log import StepLog, StepRequest
from onefold.effects.step_store import Book
from onefold.effects.steps import Stepping, step_inside
from onefold.errors import LeaseLost, UsageError
from onefold.model.claim import TAKEOVERS, Holding
from onefold.model.step import StepRow, step_name
from onefold.operations import steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.app.context import Context
    from onefold.model.claim import Claim
    from onefold.model.step import Notes, StepName
    from onefold.operations.statement import Operation, Sql
    from onefold.operations.steps import StepWrite
    from onefold.runtime import Procedure


class ClaimBook(Book):
    """The steps of a claim, for the attempt that holds it."""

    def __init__(self, claim: Claim) -> None:
        """Nothing is read yet."""
        self.fence: int = claim.fence
        # The id is kept by a resume, and new with a rerun: no other steps count.
        self.generation: int = UUID(claim.id).int
        self.is_new: bool = not claim.resumed
        self._claim = claim

    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Write a step; `LeaseLost` if the claim is no longer held by this attempt."""
        return (yield from steps.write_claim_step(sql, self._claim, wanted))

    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """All steps with the claim's key, or the one with this key of its own."""
        return (yield from steps.find_claim_steps(sql, self._claim.key, key=key))

    def third_party_key(self, name: StepName) -> str:
        """The same over every attempt with the key, a rerun included."""
        return self._claim.key.derived(name.label)


class RequestLedger(StepLog):
    """Steps of a request: a safe step is only in memory until it has ended."""

    def __init__(self, context: Context, claim: Claim, lose: Callable[[], object]) -> None:
        """`lose` is called if another attempt holds the claim."""
        super().__init__(context, ClaimBook(claim), lose)
        self._written: dict[str, StepRow] = {}
        """What the database has of them."""

    def adopt(self, row: StepRow) -> None:
        """Remember the stored state of a step."""
        super().adopt(row)
        self._written[row.key] = row

    def write(
        self, asked: StepRequest, owner: str, state: Holding, notes: Notes, *, seen: StepRow | None
    ) -> Procedure[StepRow]:
        """Write a step that is over or unsafe; of any other, keep it in mind."""
        if asked.takeover == "refuse" or state is Holding.SETTLED:
            return (yield from super().write(asked, owner, state, notes, seen=seen))
        row = StepRow(
            key=asked.name.text,
            owner=owner,
            state=state,
            fence=self.book.fence,
            fingerprint=asked.fingerprint,
            takeover=TAKEOVERS.index(asked.takeover),
            created_at=self.context.now(),
            settled_at=None,
            result=notes.text,
        )
        super().adopt(row)
        return row

    def _wanted(
        self, asked: StepRequest, owner: str, state: Holding, notes: Notes, seen: StepRow | None
    ) -> StepWrite:
        del seen  # it may be in memory alone
        stored = self._written.get(asked.name.text)
        return super()._wanted(asked, owner, state, notes, stored)


class RequestSteps(Stepping):
    """The steps of one attempt at a request, under the lease of its key."""

    def __init__(
        self,
        context: Context,
        claim: Claim,
        *,
        check: Callable[[], None] | None = None,
        lose: Callable[[], object] | None = None,
    ) -> None:
        """`check` raises if the attempt must stop; `lose` is called if the key is lost."""
        if claim.guarantee == "exactly once":
            raise UsageError(
                "Steps are for requests with a lease. Here the key is claimed in the handler's own"
                " transaction: a rollback does not undo effects outside of it, and deletes the"
                " steps that are stored in it. Remove `transaction`, and give `takeover`."
            )
        self._claim = claim
        self._check = check
        self._tell = lose
        self._lost = False
        self._options = {}
        self._steps = RequestLedger(context.own(), claim, self._lose)

    @property
    def ledger(self) -> StepLog:
        """Where they are stored."""
        return self._steps

    @property
    def _ledger(self) -> StepLog:
        return self._steps

    @property
    def lost(self) -> bool:
        """True if a step was rejected: another attempt holds the key."""
        return self._lost

    def check(self) -> None:
        """Raise `LeaseLost` if this attempt has lost the key."""
        if self._check is not None:
            self._check()
        if self._lost:
            claim = self._claim
            raise LeaseLost(f"{claim.key.surface} {claim.key.key!r}", fence=claim.fence)

    def _lose(self) -> None:
        self._lost = True
        if self._tell is not None:
            self._tell()

    def key(self, name: str | None = None, key: str | None = None) -> str:
        """A key for a third party: the same over every attempt at this request.

        `once.key("charge")` is the key of the first step of this name, `once.key("charge", order)`
        of the one with that key. Without a name, inside of a step's function, it is that step's.
        """
        book = self._ledger.book
        if name is None:
            if (inside := step_inside(self._ledger)) is None:
                raise UsageError("once.key() without a name is for the function of a step.")
            return book.third_party_key(inside)
        step = step_name(name, key=key, occurrence=1, generation=book.generation)
        return book.third_party_key(step)
