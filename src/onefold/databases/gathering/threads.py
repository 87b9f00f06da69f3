"""Group commit among threads: the first to come leads a flight, and hands over to the next."""

from __future__ import annotations

from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from onefold.databases.gathering import HeldUp, Lane, Lanes, Shared, Waiting, flight, together
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
        self._answer: Any = None
        self._error: BaseException | None = None
        self.leads: list[Waiting] = []

    def _tell(self, answer: object, error: BaseException | None) -> None:
        self._answer, self._error = answer, error
        self._gate.release()

    def lead(self, flight: list[Waiting]) -> None:
        """Wake it up to take these along."""
        self.leads = flight
        self._gate.release()

    def wait(self) -> None:
        """Until it is answered, or told to lead."""
        self._gate.acquire()

    def result(self) -> Any:
        """The answer, once there is one."""
        if self._error is not None:
            raise self._error
        return self._answer


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
        while True:
            try:
                answer: T = self._once(shared)
            except HeldUp:
                with self._lock:
                    self._lanes.part(shared)
            else:
                return answer

    def _once(self, shared: Shared[Any, Any]) -> Any:
        waiting = WaitingThread(shared)
        with self._lock:
            lane = self._lanes.of(shared)
            lane.pending.append(waiting)
            leads = lane.has_place
            if leads:
                lane.flights += 1
                waiting.leads = lane.board()
        if not leads:
            try:
                waiting.wait()
            except BaseException:
                self._abandon(lane, waiting)
                raise
        if waiting.leads:
            self._lead(lane, waiting.leads)
        return waiting.result()

    def _lead(self, lane: Lane, flying: Sequence[Waiting]) -> None:
        try:
            if lane.patient:
                with self._patience:
                    self._fly(lane, flying)
            else:
                self._fly(lane, flying)
        finally:
            # Interrupted: the others begin anew. What was stored is found again by its id.
            for each in flying:
                if not each.answered:
                    each.again()
            with self._lock:
                self._hand_over(lane, flying[0].shared)

    def _fly(self, lane: Lane, flying: Sequence[Waiting]) -> None:
        run(flight(flying), lambda some: self._transact(together(some), patient=lane.patient))

    def _hand_over(self, lane: Lane, shared: Shared[Any, Any]) -> None:
        if lane.pending:
            flying = lane.board()
            first = flying[0]
            assert isinstance(first, WaitingThread)
            first.lead(flying)
        else:
            lane.flights -= 1
            self._lanes.leave(shared, lane)

    def _abandon(self, lane: Lane, waiting: WaitingThread) -> None:
        """An interrupted thread leads nobody: those it was to take along wait for the next."""
        with self._lock:
            if waiting in lane.pending:
                lane.pending.remove(waiting)
            elif waiting.leads:
                lane.pending[:0] = [each for each in waiting.leads if each is not waiting]
                self._hand_over(lane, waiting.shared)
