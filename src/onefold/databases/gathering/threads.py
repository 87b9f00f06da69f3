"""Group commit among threads: the first to come leads a flight, and hands over to the next.

A signal may interrupt a thread anywhere. A flight is known by a token that only its leader's frame
holds: where the leader is gone, so is the token, and whoever it was to take along finds that out
and leads itself. An item that was stored before is found again by its id.
"""

from __future__ import annotations

import time
from threading import BoundedSemaphore, Lock, RLock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import ref

from onefold.databases.gathering import (
    PATIENT_FLIGHTS,
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
from onefold.operations.run import run

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
        self.leads: list[WaitingThread] = []
        self.token: Token | None = None
        """Of the flight that it leads."""
        self.flight: ref[Token] | None = None
        """Of the flight that it is on."""

    def _tell(self, answer: object, error: BaseException | None) -> None:
        self._outcome = (answer, error)
        self._wake()

    def lead(self, flying: list[WaitingThread]) -> Token:
        """Wake it up to take these along."""
        self.token = token = Token()
        self.leads = flying
        for each in flying:
            each.flight = ref(token)
        self._wake()
        return token

    def _wake(self) -> None:
        if self._gate.locked():
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
        self._patience = BoundedSemaphore(PATIENT_FLIGHTS)

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
            with self._lock:
                lane = self._lanes.of(shared, held=False)
                if lane.patient or not lane.is_empty:
                    return None
                lane.flights.add(token)
            return self._fly_alone(shared)
        finally:
            if lane is not None:
                self._end(lane, shared, token)

    def _fly_alone(self, shared: Shared[Any, T]) -> list[T]:
        return self._transact(just(shared), patient=False)

    def _together(self, waiting: WaitingThread, *, held: bool) -> Any:
        lane = None
        try:
            with self._lock:
                lane = self._lanes.of(waiting.shared, held=held)
                lane.pending.append(waiting)
            while not waiting.is_told:
                if not waiting.leads:
                    self._look_after(lane, waiting)
                if waiting.leads:
                    self._lead(lane, waiting)
                elif not waiting.is_told:
                    waiting.wait()
        finally:
            if lane is not None and not waiting.is_told:
                self._leave(lane, waiting)
        return waiting.result()

    def _look_after(self, lane: Lane[WaitingThread], waiting: WaitingThread) -> None:
        """Lead, where there is a place; wait again, where the flight that it was on is gone."""
        with self._lock:
            on_its_way = waiting.flight is not None and waiting.flight() is not None
            if waiting.is_told or waiting.leads or on_its_way:
                return
            if waiting not in lane.pending:
                lane.pending.insert(0, waiting)
            self._call_for_a_flight(lane)

    def _call_for_a_flight(self, lane: Lane[WaitingThread]) -> None:
        """Have the first of those who wait lead, where there is a place."""
        if lane.pending and lane.has_place:
            flying = lane.board()
            lane.flights.add(flying[0].lead(flying))

    def _lead(self, lane: Lane[WaitingThread], waiting: WaitingThread) -> None:
        self._fly(lane, [each for each in waiting.leads if not each.is_told])
        with self._lock:
            waiting.leads = []
        self._end(lane, waiting.shared, waiting.token)

    def _fly(self, lane: Lane[WaitingThread], flying: Sequence[WaitingThread]) -> None:
        if not lane.patient:
            run(flight(flying), lambda some: self._transact(together(some), patient=False))
            return
        deadline = max(each.deadline for each in flying)
        if not self._patience.acquire(timeout=max(0.0, deadline - time.monotonic())):
            fail_all(flying, self._busy())
            return
        try:
            run(
                flight(flying),
                lambda some: self._transact(together(some), patient=True, deadline=deadline),
            )
        finally:
            self._patience.release()

    def _end(
        self, lane: Lane[WaitingThread], shared: Shared[Any, Any], token: Token | None
    ) -> None:
        """Hand over to the next."""
        with self._lock:
            if token is not None:
                lane.flights.discard(token)
            self._call_for_a_flight(lane)
            self._lanes.leave(shared, lane)

    def _leave(self, lane: Lane[WaitingThread], waiting: WaitingThread) -> None:
        """An interrupted thread leads nobody: those it was to take along wait for the next."""
        with self._lock:
            lane.pending[:0] = [each for each in waiting.leads if not each.is_told]
            lane.pending[:] = [each for each in lane.pending if each is not waiting]
            waiting.leads = []
            self._end(lane, waiting.shared, waiting.token)
