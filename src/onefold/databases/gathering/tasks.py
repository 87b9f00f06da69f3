"""Group commit among the tasks of one event loop: a flight is a task of its own.

A caller that is cancelled leaves its flight to the others. A flight leaves one turn of the loop
after it was called for, so whoever asks in the same turn is on it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from onefold.databases.gathering import (
    CROWD,
    LATE,
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
from onefold.operations.statement import run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onefold.databases import Build

T = TypeVar("T")


class Transact(Protocol):
    """Runs an operation in a transaction; an impatient one raises `HeldUp` at a held key."""

    async def __call__(self, build: Build[T], *, patient: bool, deadline: float | None = None) -> T:
        """Run it; a patient one waits until the deadline."""
        ...


class WaitingTask(Waiting):
    """A task that waits for its answer."""

    def __init__(
        self, shared: Shared[Any, Any], deadline: float, future: asyncio.Future[Any]
    ) -> None:
        """`future` is what it awaits."""
        super().__init__(shared, deadline)
        self.future = future

    def _tell(self, answer: object, error: BaseException | None) -> None:
        if self.future.done():  # cancelled
            return
        if error is None:
            self.future.set_result(answer)
        else:
            self.future.set_exception(error)


class GatheredTasks:
    """The tasks of an event loop that make single calls."""

    def __init__(
        self, transact: Transact, *, patience: float, busy: Callable[[], Exception]
    ) -> None:
        """`transact` is the database's; `busy` makes the error for who has waited so long."""
        self._transact = transact
        self._seconds = patience
        self._busy = busy
        self._lanes: Lanes[WaitingTask] = Lanes(crowd=CROWD)
        self._flights: set[asyncio.Task[None]] = set()
        self._patience = asyncio.Semaphore(PATIENT_FLIGHTS)

    async def run(self, shared: Shared[Any, T]) -> T:
        """Run an item, with others where there are any."""
        deadline = time.monotonic() + self._seconds
        held = False
        while True:
            try:
                lane = self._lanes.of(shared, held=held)
                if lane.is_empty and not lane.patient:
                    return await self._fly_alone(lane, shared)
                answer: T = await self._once(lane, shared, deadline)
            except HeldUp:
                held = True
            else:
                return answer

    async def _fly_alone(self, lane: Lane[WaitingTask], shared: Shared[Any, T]) -> T:
        """Most calls meet nobody, and need no task of their own."""
        token = Token()
        lane.flights.add(token)
        try:
            (answer,) = await self._transact(just(shared), patient=False)
            return answer
        finally:
            self._end_flight(lane, shared, token)

    async def _once(
        self, lane: Lane[WaitingTask], shared: Shared[Any, Any], deadline: float
    ) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting = WaitingTask(shared, deadline, future)
        lane.pending.append(waiting)
        self._see_to(lane, shared)
        return await waiting.future

    def _see_to(self, lane: Lane[WaitingTask], shared: Shared[Any, Any]) -> None:
        """Have a flight leave for those who wait, now or when the one on its way is late."""
        if not lane.pending or lane.boarding:
            return
        if lane.has_place:
            self._call_for_a_flight(lane, shared)
        elif not lane.watched and not lane.patient:
            lane.watched = True
            asyncio.get_running_loop().call_later(LATE, self._look_again, lane, shared)

    def _look_again(self, lane: Lane[WaitingTask], shared: Shared[Any, Any]) -> None:
        lane.watched = False
        self._see_to(lane, shared)

    def _call_for_a_flight(self, lane: Lane[WaitingTask], shared: Shared[Any, Any]) -> None:
        token = Token()
        lane.flights.add(token)
        lane.boarding = True
        task = asyncio.get_running_loop().create_task(self._fly_all(lane, token))
        # The loop itself forgets tasks that nobody else remembers.
        self._flights.add(task)
        # Not at the end of the task: one that is cancelled before it began has no end.
        task.add_done_callback(lambda task: self._land(task, lane, shared, token))

    def _land(
        self,
        task: asyncio.Task[None],
        lane: Lane[WaitingTask],
        shared: Shared[Any, Any],
        token: Token,
    ) -> None:
        self._flights.discard(task)
        if task.cancelled():
            # The loop is ending. Who is still there has its own reasons, and is taken along.
            lane.boarding = False
        self._end_flight(lane, shared, token)

    def _end_flight(self, lane: Lane[WaitingTask], shared: Shared[Any, Any], token: Token) -> None:
        lane.flights.discard(token)
        lane.pending = [each for each in lane.pending if not _is_gone(each)]
        self._see_to(lane, shared)
        self._lanes.leave(shared, lane)

    async def _fly_all(self, lane: Lane[WaitingTask], token: Token) -> None:
        while flying := self._board(lane):
            try:
                await self._fly(lane, flying)
            finally:
                lane.pending[:0] = [each for each in flying if not each.answered]
            if not lane.has_place_again(token):
                # Who has come meanwhile takes the next of the flight that is on its way.
                return
            lane.flights.add(token)

    def _board(self, lane: Lane[WaitingTask]) -> list[WaitingTask]:
        """The next flight, without those who have been cancelled."""
        lane.boarding = False
        while boarding := lane.board():
            here = [each for each in boarding if not _is_gone(each)]
            if here:
                return here
        return []

    async def _fly(self, lane: Lane[WaitingTask], flying: Sequence[WaitingTask]) -> None:
        deadline = max(each.deadline for each in flying)

        async def transact(some: Sequence[Waiting]) -> list[Any]:
            return await self._transact(
                together(some), patient=lane.patient, deadline=deadline if lane.patient else None
            )

        if not lane.patient:
            await run_async(flight(flying), transact)
            return
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self._patience.acquire()
        except TimeoutError:
            fail_all(flying, self._busy())
            return
        try:
            await run_async(flight(flying), transact)
        finally:
            self._patience.release()


def _is_gone(waiting: WaitingTask) -> bool:
    return waiting.future.done()
