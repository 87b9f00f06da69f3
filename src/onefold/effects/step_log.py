"""The steps of one run: which are stored, which this run has requested, which comes next.

1. The steps of earlier attempts are read once, with the first step. No other attempt can add steps
   while this one has the job (or the key).
2. The result of a step that is over is returned from memory.
3. A step that failed in this run and is requested again with the same arguments is the same step,
   not the next one of its name: a rerun, in which it succeeds at once, must find it.
4. While all requested steps were over before, the code takes the same path as before. If it then
   requests a new step at a place where another step was stored, the code has changed.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from onefold.errors import Busy, KeyReused, LeaseLost, OutcomeUnknown, StepsChanged
from onefold.model.claim import JOINED_RETRY, Holding
from onefold.model.ids import new_id
from onefold.model.step import Notes, StepName, StepRow, read_name, step_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.effects.step_store import StepBackend, StepRequest
    from onefold.model.step import Failure
    from onefold.runtime import Procedure


class StepLog:
    """The steps of one run, on any backend."""

    def __init__(self, backend: StepBackend, lose: Callable[[], object]) -> None:
        """`lose` is called if another attempt has the work."""
        self.backend = backend
        self.lose = lose
        self._mutex = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._rows: dict[str, StepRow] = {}
        self._is_read = False
        self._over: dict[str, Notes] = {}
        """Steps that were over when this run began, and have not been requested yet."""
        self._replayed: set[str] = set()
        self._repeats_earlier_run = True
        """True while every requested step was over before."""
        self._given_up: dict[tuple[str, str | None], list[int]] = {}
        """By name and arguments: the steps that are not over, and that no task is running."""
        self._abandoned: set[str] = set()
        """The owners that began them."""

    def name(self, name: object, key: object, fingerprint: str | None = None) -> StepName:
        """The step with this key; or the one that was given up; or the next one of this name."""
        found = step_name(name, key=key, occurrence=1, generation=self.backend.generation)
        if key is not None:
            return found
        with self._mutex:
            if given_up := self._given_up.get((found.name, fingerprint)):
                occurrence = given_up.pop(0)
            else:
                self._counts[found.name] += 1
                occurrence = self._counts[found.name]
        return step_name(name, occurrence=occurrence, generation=self.backend.generation)

    def give_up(self, request: StepRequest, row: StepRow | None) -> None:
        """A step has ended without being over: the next request for it begins it anew."""
        with self._mutex:
            if row is not None:
                self._abandoned.add(row.owner)
            if request.name.key is None:
                given_up = self._given_up.setdefault((request.name.name, request.fingerprint), [])
                given_up.append(request.name.occurrence)
                given_up.sort()

    def find(self, request: StepRequest) -> Procedure[StepRow | None]:
        """The stored step, if any; checks that it may be requested here."""
        yield from self._read()
        key = request.name.text
        row = self._rows.get(key)
        if row is not None and row.is_settled:
            self._over.pop(key, None)
            self._replayed.add(key)
        else:
            if row is None:
                self._refuse_changed(request.name)
            self._repeats_earlier_run = False
        self.refuse_reused(request, row)
        return row

    def begin(
        self,
        request: StepRequest,
        row: StepRow | None,
        *,
        verified: bool = False,
        owner: str | None = None,
    ) -> Procedure[StepRow]:
        """Begin a step that is not over; returns it, settled meanwhile or begun by this run.

        `OutcomeUnknown` if it must not be repeated, and its last try vanished or gave up.
        """
        owner = owner or new_id()
        while True:
            self.refuse_reused(request, row)
            if row is not None and row.is_held:
                if not self.is_abandoned(row):
                    raise Busy(key=request.name.label, retry_after=JOINED_RETRY)
                if row.must_not_rerun and not verified:
                    raise OutcomeUnknown(key=request.name.label)
            row = yield from self.kept(self.backend.begin(request, owner, row, verified=verified))
            if row.owner == owner or row.is_settled:
                return row
            # `verify` was called for an earlier try.
            verified = False

    def finish(self, request: StepRequest, row: StepRow, value: str) -> Procedure[StepRow]:
        """Store the final result of a step, which is JSON text."""
        return self._ended(request, row, Holding.SETTLED, self.backend.finish(request, row, value))

    def fail(
        self, request: StepRequest, row: StepRow, failure: Failure, state: Holding
    ) -> Procedure[StepRow]:
        """Store a failure: free for another try, held with an unknown outcome, settled for good."""
        return self._ended(request, row, state, self.backend.fail(request, row, failure, state))

    def adopt(self, row: StepRow) -> StepRow:
        """Remember the stored form of a step."""
        self._rows[row.key] = row
        return row

    def is_abandoned(self, row: StepRow) -> bool:
        """True if the owner of a step is not running it any more."""
        return row.fence != self.backend.fence or row.owner in self._abandoned

    def _ended(
        self, request: StepRequest, row: StepRow, state: Holding, write: Procedure[StepRow]
    ) -> Procedure[StepRow]:
        now = yield from self.kept(write)
        if (now.owner, now.state) != (row.owner, state):
            # Taken over together with the job; or an operator has settled the step alone.
            if now.fence != self.backend.fence:
                self.lose()
            raise LeaseLost(f"the step {request.name.label!r}", fence=self.backend.fence)
        return now

    def kept(self, write: Procedure[StepRow]) -> Procedure[StepRow]:
        """Write a step, and remember its stored form."""
        try:
            row = yield from write
        except LeaseLost:
            self.lose()
            raise
        return self.adopt(row)

    def _read(self) -> Procedure[None]:
        """Only once: another task may have read the steps meanwhile, and begun one since."""
        if self._is_read:
            return
        found = yield from self.backend.read()
        if not self._is_read:
            for row in found:
                self.adopt(row)
            self._over = {row.key: row.notes for row in found if row.is_settled}
            self._is_read = True

    def refuse_reused(self, request: StepRequest, row: StepRow | None) -> None:
        """Raise if the step was begun with other arguments."""
        known = None if row is None or row.state == Holding.FREE else row.fingerprint
        if known is not None and request.fingerprint not in (None, known):
            raise KeyReused(key=request.name.label)

    def _refuse_changed(self, name: StepName) -> None:
        """Raise if the code has changed. The order of steps with keys depends on the data."""
        if not self._repeats_earlier_run or name.key is not None:
            return
        places = {key: row.notes.place for key, row in self._rows.items() if row.is_settled}
        for key, notes in self._over.items():
            before = {other for other, at in places.items() if at <= notes.begun and other != key}
            if read_name(key).key is None and before == self._replayed:
                raise StepsChanged(requested=name.label, expected=read_name(key).label)
