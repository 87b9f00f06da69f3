"""Group commit among threads: the first to come leads a flight, and hands over to the next.

A signal may interrupt a thread anywhere, in the middle of its clearing up as well. So:

1. Whatever is done at the end may be done twice, and is done once more where it was interrupted.
2. A flight is known by a token that only its leader holds, and nothing that the leader holds leads
   back to it: where even that was interrupted, the token is gone with the leader, and whoever it
   was to take along finds that out and leads itself.
3. Locks are C's own, taken by `with`: no signal comes between their being taken and the block.

An item that was stored before is found again by its id.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import ref

from onefold.databases.gathering import (
    PATIENT_FLIGHTS,
    Flights,
    HeldUp,
    Lane,
    Lanes,
    Shared,
    Token,
    Waiting,
    fail_all,
    flight,
    just,
    together,
)
from onefold.operations.statement import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onefold.databases import Build

T = TypeVar("T")

LOOK: Final = 0.05
"""Seconds after which a waiting thread looks whether anybody is still there to answer."""


class Transact(Protocol):
    """Runs an operation in a transaction; an impatient one raises `HeldUp` at a held key."""

    def __call__(self, build: Build[T], *, patient: bool, deadline: float | None = None) -> T:
        """Run it; a patient one waits until the deadline."""
        ...


class WaitingThread(Waiting):
    """A thread that waits to be answered, or to lead."""

    def __init__(self, shared: Shared[Any, Any], deadline: float) -> None:
        """Not woken yet."""
        super().__init__(shared, deadline)
        self._gate = Lock()
        self._gate.acquire()
        self._outcome: tuple[object, BaseException | None] | None = None
        self.leads: bool = False
        self.others: list[WaitingThread] = []
        """Whom it is to take along."""
        self.token: Token | None = None
        """Of the flight that it leads."""
        self.flight: ref[Token] | None = None
        """Of the flight that it is on."""

    def _tell(self, answer: object, error: BaseException | None) -> None:
        self._outcome = (answer, error)
        self.wake()

    def lead(self, flying: list[WaitingThread]) -> Token:
        """Wake it up to take these along; it is the first of them."""
        self.token = Token()
        for each in flying:
            each.flight = ref(self.token)
        self.others = flying[1:]
        # Last: where a signal came before, there is no such flight.
        self.leads = True
        self.wake()
        return self.token

    @property
    def is_on_its_way(self) -> bool:
        """Whether somebody is there to take it along."""
        return self.flight is not None and self.flight() is not None

    @property
    def stranded(self) -> list[WaitingThread]:
        """Those who were to be taken along and have no answer, and nobody else."""
        return [each for each in self.others if not each.is_told and each.is_led_by(self)]

    def is_led_by(self, other: WaitingThread) -> bool:
        """Whether it is on the flight of that one."""
        return self.flight is not None and self.flight() is other.token

    def wake(self) -> None:
        """Have it look what there is to do."""
        # Somebody else may have woken it.
        with suppress(RuntimeError):
            self._gate.release()

    def wait(self) -> None:
        """For a while, or until it is answered or told to lead."""
        self._gate.acquire(timeout=LOOK)

    @property
    def is_told(self) -> bool:
        """Whether there is an answer."""
        return self._outcome is not None

    def result(self) -> Any:
        """The answer, once there is one."""
        assert self._outcome is not None
        answer, error = self._outcome
        if error is not None:
            raise error
        return answer


class Patience:
    """A few places for flights that may wait long, for all lanes together."""

    def __init__(self) -> None:
        """All of them free."""
        self._lock = RLock()
        self._flights = Flights()
        # Weak: whoever stays in here by accident must not live on with its flight.
        self._queue: list[ref[WaitingThread]] = []

    def take(self, leader: WaitingThread) -> bool:
        """Whether it has a place now; if not, it is woken when there may be one."""
        with self._lock:
            self._queue = [each for each in self._queue if each() not in {None, leader}]
            if leader.token is not None and len(self._flights) < PATIENT_FLIGHTS:
                self._flights.add(leader.token)
                return True
            self._queue.append(ref(leader))
            return False

    def leave(self, leader: WaitingThread) -> None:
        """Give the place to the next. May be said twice."""
        with self._lock:
            self._queue = [each for each in self._queue if each() not in {None, leader}]
            if leader.token is not None:
                self._flights.discard(leader.token)
            for each in self._queue[:PATIENT_FLIGHTS]:
                if (waiting := each()) is not None:
                    waiting.wake()


class GatheredThreads:
    """The threads of a process that make single calls."""

    def __init__(
        self, transact: Transact, *, patience: float, busy: Callable[[], Exception]
    ) -> None:
        """`transact` is the database's; `busy` makes the error for who has waited so long."""
        self._transact = transact
        self._seconds = patience
        self._busy = busy
        # Reentrant: a signal handler may enqueue in the middle of an enqueue.
        self._lock = RLock()
        self._lanes: Lanes[WaitingThread] = Lanes()
        self._patience = Patience()

    def run(self, shared: Shared[Any, T]) -> T:
        """Run an item, with others where there are any."""
        deadline = time.monotonic() + self._seconds
        held = False
        while True:
            try:
                if not held and (answers := self._alone(shared)) is not None:
                    return answers[0]
                answer: T = self._together(WaitingThread(shared, deadline), held=held)
            except HeldUp:
                held = True
            else:
                return answer

    def _alone(self, shared: Shared[Any, T]) -> list[T] | None:
        """Most calls meet nobody, and need nobody told; None where somebody else is there."""
        token = Token()
        lane = None
        try:
            try:
                with self._lock:
                    lane = self._lanes.of(shared, held=False)
                    if lane.patient or not lane.is_empty:
                        return None
                    lane.flights.add(token)
                return self._fly_alone(shared)
            finally:
                if lane is not None:
                    self._end(lane, shared, token)
        except BaseException:
            # A signal may have come in the way of the end.
            if lane is not None:
                self._end(lane, shared, token)
            raise

    def _fly_alone(self, shared: Shared[Any, T]) -> list[T]:
        return self._transact(just(shared), patient=False)

    def _together(self, waiting: WaitingThread, *, held: bool) -> Any:
        lane = None
        try:
            try:
                with self._lock:
                    lane = self._lanes.of(waiting.shared, held=held)
                    lane.pending.append(waiting)
                while not waiting.is_told:
                    self._go_on(lane, waiting)
            finally:
                if lane is not None and (waiting.leads or not waiting.is_told):
                    self._leave(lane, waiting)
        except BaseException:
            # A signal may have come in the way of the end.
            if lane is not None:
                self._leave(lane, waiting)
            raise
        return waiting.result()

    def _go_on(self, lane: Lane[WaitingThread], waiting: WaitingThread) -> None:
        if not waiting.leads:
            self._look_after(lane, waiting)
        if waiting.leads:
            self._fly(lane, waiting)
        elif not waiting.is_told:
            waiting.wait()

    def _look_after(self, lane: Lane[WaitingThread], waiting: WaitingThread) -> None:
        """Lead, where there is a place; wait again, where the flight that it was on is gone."""
        with self._lock:
            if waiting.is_told or waiting.leads:
                return
            # Left by somebody who was interrupted while it told this one to lead.
            waiting.token = None
            if waiting.is_on_its_way:
                return
            if waiting not in lane.pending:
                lane.pending.insert(0, waiting)
            self._call_for_a_flight(lane)

    def _call_for_a_flight(self, lane: Lane[WaitingThread]) -> None:
        """Have the first of those who wait lead, where there is a place."""
        if lane.pending and lane.has_place:
            flying = lane.board()
            lane.flights.add(flying[0].lead(flying))

    def _fly(self, lane: Lane[WaitingThread], leader: WaitingThread) -> None:
        flying = [leader, *leader.others]
        if lane.patient:
            self._fly_patiently(leader, flying)
        else:
            run(flight(flying), lambda some: self._transact(together(some), patient=False))

    def _fly_patiently(self, leader: WaitingThread, flying: Sequence[WaitingThread]) -> None:
        deadline = max(each.deadline for each in flying)
        while not self._patience.take(leader):
            if time.monotonic() >= deadline:
                fail_all(flying, self._busy())
                return
            leader.wait()
        run(
            flight(flying),
            lambda some: self._transact(together(some), patient=True, deadline=deadline),
        )

    def _end(self, lane: Lane[WaitingThread], shared: Shared[Any, Any], token: Token) -> None:
        """Hand over to the next. May be said twice."""
        with self._lock:
            lane.flights.discard(token)
            self._call_for_a_flight(lane)
            self._lanes.leave(shared, lane)

    def _leave(self, lane: Lane[WaitingThread], waiting: WaitingThread) -> None:
        """Lead nobody any more: those who have no answer wait for the next. May be said twice."""
        if lane.patient:
            self._patience.leave(waiting)
        with self._lock:
            stranded = waiting.stranded
            if stranded or not waiting.is_told:
                known = {waiting, *stranded}
                lane.pending[:] = [*stranded, *[e for e in lane.pending if e not in known]]
            if waiting.token is not None:
                lane.flights.discard(waiting.token)
            waiting.token = None
            waiting.leads = False
            self._call_for_a_flight(lane)
            self._lanes.leave(waiting.shared, lane)
