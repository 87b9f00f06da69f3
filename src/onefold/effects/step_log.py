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

import msgspec

from onefold.errors import Busy, DatabaseError, KeyReused, LeaseLost, StepsChanged
from onefold.model.claim import JOINED_RETRY, Holding, Takeover
from onefold.model.ids import new_id
from onefold.model.step import NOTHING, Failure, Notes, StepName, StepRow, read_name, step_name
from onefold.operations import steps
from onefold.runtime import Procedure, Transact

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.app.context import Context
    from onefold.databases import Build
    from onefold.effects.step_store import Book
    from onefold.operations.statement import Operation, Sql


class StepRequest(msgspec.Struct, frozen=True):
    """A step that the handler requests."""

    name: StepName
    fingerprint: str | None = None
    takeover: Takeover = "rerun"


class StepLog:
    """The steps in one book, for one run."""

    def __init__(self, context: Context, book: Book, lose: Callable[[], object]) -> None:
        """`lose` is called if another attempt has the work."""
        self.context = context
        self.book = book
        self._lose = lose
        self._mutex = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._rows: dict[str, StepRow] = {}
        self._is_read = book.is_new
        self._over: dict[str, Notes] = {}
        """Steps that were over when this run began, and have not been requested yet."""
        self._replayed: set[str] = set()
        self._goes_the_old_way = not self._is_read
        self._settled = 0
        self._given_up: dict[tuple[str, str | None], list[int]] = {}
        """By name and arguments: the steps that are not over, and that no task is running."""
        self._abandoned: set[str] = set()
        """The owners that began them."""

    def name(self, name: object, key: object, fingerprint: str | None = None) -> StepName:
        """The step with this key; or the one that was given up; or the next one of this name."""
        found = step_name(name, key=key, occurrence=1, generation=self.book.generation)
        if key is not None:
            return found
        with self._mutex:
            if given_up := self._given_up.get((found.name, fingerprint)):
                occurrence = given_up.pop(0)
            else:
                self._counts[found.name] += 1
                occurrence = self._counts[found.name]
        return step_name(name, occurrence=occurrence, generation=self.book.generation)

    def give_up(self, asked: StepRequest, row: StepRow | None) -> None:
        """A step has ended without being over: the next request for it begins it anew."""
        with self._mutex:
            if row is not None:
                self._abandoned.add(row.owner)
            if asked.name.key is None:
                given_up = self._given_up.setdefault((asked.name.name, asked.fingerprint), [])
                given_up.append(asked.name.occurrence)
                given_up.sort()

    def is_abandoned(self, row: StepRow) -> bool:
        """True if the owner of a step is not running it any more."""
        return row.fence != self.book.fence or row.owner in self._abandoned

    def find(self, asked: StepRequest) -> Procedure[StepRow | None]:
        """The stored step, if any; checks that it may be requested here."""
        yield from self._read()
        key = asked.name.text
        row = self._rows.get(key)
        if row is not None and row.is_settled:
            self._over.pop(key, None)
            self._replayed.add(key)
        else:
            if row is None:
                self._refuse_changed(asked.name)
            self._goes_the_old_way = False
        self._refuse_reused(asked, row)
        return row

    def begin(self, asked: StepRequest, row: StepRow | None) -> Procedure[StepRow]:
        """Begin a step that is not over; returns it, settled meanwhile or begun by this run."""
        owner = new_id()
        while True:
            if row is not None:
                self._refuse_reused(asked, row)
                if row.is_held and not self.is_abandoned(row):
                    raise Busy(key=asked.name.label, retry_after=JOINED_RETRY)
            attempts = 1 if row is None else row.notes.attempts + 1
            notes = Notes(attempts, begun=self._settled, failure=row.notes.failure if row else None)
            row = yield from self.write(asked, owner, Holding.HELD, notes, seen=row)
            if row.owner == owner or row.is_settled:
                return row

    def settle(
        self,
        asked: StepRequest,
        row: StepRow,
        *,
        value: str | None = None,
        failure: Failure | None = None,
    ) -> Procedure[StepRow]:
        """Store the final result or failure of a step."""
        notes = self._over_now(row.notes, value, failure)
        return (yield from self._say(asked, row, Holding.SETTLED, notes))

    def release(self, asked: StepRequest, row: StepRow, failure: Failure) -> Procedure[StepRow]:
        """Release a step that failed and may be tried again; the count of its attempts is kept."""
        notes = msgspec.structs.replace(row.notes, failure=failure)
        return (yield from self._say(asked, row, Holding.FREE, notes))

    def again(self, asked: StepRequest, row: StepRow, failure: Failure) -> Procedure[StepRow]:
        """Store the failure of a step that is tried again at once by its owner."""
        attempts = row.notes.attempts + 1
        notes = msgspec.structs.replace(row.notes, failure=failure, attempts=attempts)
        return (yield from self._say(asked, row, Holding.HELD, notes))

    def note(self, asked: StepRequest, row: StepRow, failure: Failure) -> Procedure[StepRow]:
        """Store the failure of a step that is not over."""
        notes = msgspec.structs.replace(row.notes, failure=failure)
        return (yield from self._say(asked, row, Holding.HELD, notes))

    def store(self, asked: StepRequest, row: StepRow | None, value: str) -> Procedure[StepRow]:
        """Store a step that has no effect; returns it, or the one that another task stored."""
        notes = self._over_now(Notes(begun=self._settled), value, None)
        now = yield from self.write(asked, new_id(), Holding.SETTLED, notes, seen=row)
        if not now.is_settled:
            raise Busy(key=asked.name.label, retry_after=JOINED_RETRY)
        return now

    def record(self, asked: StepRequest, row: StepRow | None, value: str) -> Build[StepRow]:
        """Store a step that is over, in the transaction that has its effect."""
        attempts = 1 if row is None else row.notes.attempts + 1
        notes = self._over_now(Notes(attempts, begun=self._settled), value, None)
        wanted = self._wanted(asked, new_id(), Holding.SETTLED, notes, row)

        def build(sql: Sql) -> Operation[StepRow]:
            try:
                now = yield from self.book.write(sql, wanted)
            except LeaseLost:
                self._lose()
                raise
            if now.owner != wanted.owner:
                raise LeaseLost(f"the step {asked.name.label!r}", fence=self.book.fence)
            return now

        return build

    def has_stored(self, row: StepRow) -> Procedure[bool]:
        """Whether a commit that failed has succeeded: perhaps only its response was lost."""
        try:
            found: list[StepRow] = yield Transact(
                lambda sql: self.book.find(sql, key=row.key), write=False
            )
        except DatabaseError:
            return False
        return [one.owner for one in found] == [row.owner]

    def adopt(self, row: StepRow) -> None:
        """Remember the stored form of a step."""
        self._rows[row.key] = row

    def write(
        self, asked: StepRequest, owner: str, state: Holding, notes: Notes, *, seen: StepRow | None
    ) -> Procedure[StepRow]:
        """Write a step; returns its stored form."""
        wanted = self._wanted(asked, owner, state, notes, seen)
        try:
            row: StepRow = yield Transact(lambda sql: self.book.write(sql, wanted))
        except LeaseLost:
            self._lose()
            raise
        self.adopt(row)
        return row

    def _say(
        self, asked: StepRequest, row: StepRow, state: Holding, notes: Notes
    ) -> Procedure[StepRow]:
        now = yield from self.write(asked, row.owner, state, notes, seen=row)
        if (now.owner, now.state) != (row.owner, state):
            # Taken over together with the job; or an operator has settled the step alone.
            if now.fence != self.book.fence:
                self._lose()
            raise LeaseLost(f"the step {asked.name.label!r}", fence=self.book.fence)
        return now

    def _wanted(
        self, asked: StepRequest, owner: str, state: Holding, notes: Notes, seen: StepRow | None
    ) -> steps.StepWrite:
        return steps.StepWrite(
            key=asked.name.text,
            owner=owner,
            state=state,
            notes=notes,
            takeover=asked.takeover,
            # A released step may be requested with other arguments.
            fingerprint=None if state is Holding.FREE else asked.fingerprint,
            seen=seen,
        )

    def _over_now(self, notes: Notes, value: str | None, failure: Failure | None) -> Notes:
        with self._mutex:
            self._settled += 1
            place = self._settled
        raw = NOTHING if value is None else msgspec.Raw(value.encode())
        return msgspec.structs.replace(notes, place=place, value=raw, failure=failure)

    def _read(self) -> Procedure[None]:
        if self._is_read:
            return
        found: list[StepRow] = yield Transact(self.book.find, write=False)
        self._adopt_all(found)

    def _adopt_all(self, found: list[StepRow]) -> None:
        """Only once: another task may have read the steps meanwhile, and begun one since."""
        if self._is_read:
            return
        generation = self.book.generation
        mine = [row for row in found if read_name(row.key).generation == generation]
        for row in mine:
            self.adopt(row)
        self._over = {row.key: row.notes for row in mine if row.is_settled}
        self._settled = max((notes.place for notes in self._over.values()), default=0)
        self._is_read = True

    def _refuse_reused(self, asked: StepRequest, row: StepRow | None) -> None:
        known = None if row is None or row.state == Holding.FREE else row.fingerprint
        if known is not None and asked.fingerprint not in (None, known):
            raise KeyReused(key=asked.name.label)

    def _refuse_changed(self, name: StepName) -> None:
        """Raise if the code has changed. The order of steps with keys depends on the data."""
        if not self._goes_the_old_way or name.key is not None:
            return
        places = {key: row.notes.place for key, row in self._rows.items() if row.is_settled}
        for key, notes in self._over.items():
            before = {other for other, at in places.items() if at <= notes.begun and other != key}
            if read_name(key).key is None and before == self._replayed:
                raise StepsChanged(asked=name.label, expected=read_name(key).label)
