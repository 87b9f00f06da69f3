"""Group commit among threads: the first to come leads a flight, and hands over to the next.

A signal may interrupt a thread anywhere. Whoever it was to take along is taken by the next one; an
item that was stored before is found again by its id.
"""

from __future__ import annotations

from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from onefold.databases.gathering import (
    HeldUp,
    Lane,
    Lanes,
    Shared,
    Waiting,
    flight,
    just,
    together,
)
from onefold.operations.run import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.databases import Build

T = TypeVar("T")

PATIENT_FLIGHTS: Final = 5
"""Of all lanes together: held keys must not use up the connections that everybody needs."""


class Transact(Protocol):
    """Runs an operation in a transaction; an impatient one raises `HeldUp` at a held key."""

    def __call__(self, build: Build[T], *, patient: bool) -> T:
        """Run it."""
        ...


class WaitingThread(Waiting):
    """A thread that waits to be answered, or to lead."""

    def __init__(self, shared: Shared[Any, Any]) -> None:
        """Not woken yet."""
        super().__init__(shared)
        self._gate = Lock()
        self._gate.acquire()
        self._outcome: tuple[object, BaseException | None] | None = None
        self.lane: Lane | None = None
        self.leads: list[Waiting] = []

    def _tell(self, answer: object, error: BaseException | None) -> None:
        self._outcome = (answer, error)
        self._wake()

    def lead(self, flight: list[Waiting]) -> None:
        """Wake it up to take these along."""
        self.leads = flight
        self._wake()

    def _wake(self) -> None:
        if self._gate.locked():
            self._gate.release()

    def wait(self) -> None:
        """Until it is answered, or told to lead."""
        self._gate.acquire()

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

    def __init__(self, transact: Transact) -> None:
        """`transact` is the database's."""
        self._transact = transact
        self._lock = Lock()
        self._lanes = Lanes()
        self._patience = BoundedSemaphore(PATIENT_FLIGHTS)

    def run(self, shared: Shared[Any, T]) -> T:
        """Run an item, with others where there are any."""
        held = False
        while True:
            try:
                if not held and (lane := self._alone(shared)):
                    return self._fly_alone(lane, shared)
                answer: T = self._once(shared, held=held)
            except HeldUp:
                held = True
            else:
                return answer

    def _alone(self, shared: Shared[Any, Any]) -> Lane | None:
        """The lane, with a flight of our own, where there is nobody else in it."""
        with self._lock:
            lane = self._lanes.of(shared, held=False)
            if not lane.is_empty:
                return None
            lane.flights += 1
        return lane

    def _fly_alone(self, lane: Lane, shared: Shared[Any, T]) -> T:
        """Most calls meet nobody, and need nobody told."""
        try:
            (answer,) = self._transact(just(shared), patient=False)
            return answer
        finally:
            with self._lock:
                self._hand_over(lane, shared)

    def _once(self, shared: Shared[Any, Any], *, held: bool) -> Any:
        waiting = WaitingThread(shared)
        try:
            lane = self._join(waiting, held=held)
            while not waiting.is_told:
                if waiting.leads:
                    self._lead(lane, waiting)
                else:
                    waiting.wait()
        except BaseException:
            self._leave(waiting)
            raise
        return waiting.result()

    def _join(self, waiting: WaitingThread, *, held: bool) -> Lane:
        with self._lock:
            lane = self._lanes.of(waiting.shared, held=held)
            waiting.lane = lane
            lane.pending.append(waiting)
            if lane.has_place:
                lane.flights += 1
                waiting.leads = lane.board()
        return lane

    def _lead(self, lane: Lane, waiting: WaitingThread) -> None:
        if lane.patient:
            with self._patience:
                self._fly(lane, waiting.leads)
        else:
            self._fly(lane, waiting.leads)
        self._leave(waiting)

    def _fly(self, lane: Lane, flying: Sequence[Waiting]) -> None:
        run(flight(flying), lambda some: self._transact(together(some), patient=lane.patient))

    def _leave(self, waiting: WaitingThread) -> None:
        """Hand over to the next. May be called again, where it was interrupted."""
        with self._lock:
            lane = waiting.lane
            if lane is None:
                return
            if waiting in lane.pending:
                lane.pending.remove(waiting)
            if waiting.leads:
                lane.pending[:0] = [
                    each for each in waiting.leads if each is not waiting and not each.answered
                ]
                self._hand_over(lane, waiting.shared)
                waiting.leads = []

    def _hand_over(self, lane: Lane, shared: Shared[Any, Any]) -> None:
        if lane.pending:
            flying = lane.board()
            first = flying[0]
            assert isinstance(first, WaitingThread)
            first.lead(flying)
        else:
            lane.flights -= 1
            self._lanes.leave(shared, lane)
