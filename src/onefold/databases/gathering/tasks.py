"""Group commit among the tasks of one event loop: a flight is a task of its own.

A caller that is cancelled leaves its flight to the others. A flight leaves one turn of the loop
after it was called for, so whoever asks in the same turn is on it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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
from onefold.databases.gathering.threads import PATIENT_FLIGHTS
from onefold.operations.run import run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.databases import Build

T = TypeVar("T")


class Transact(Protocol):
    """Runs an operation in a transaction; an impatient one raises `HeldUp` at a held key."""

    async def __call__(self, build: Build[T], *, patient: bool) -> T:
        """Run it."""
        ...


class WaitingTask(Waiting):
    """A task that waits for its answer."""

    def __init__(self, shared: Shared[Any, Any], future: asyncio.Future[Any]) -> None:
        """`future` is what it awaits."""
        super().__init__(shared)
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

    def __init__(self, transact: Transact) -> None:
        """`transact` is the database's."""
        self._transact = transact
        self._lanes = Lanes()
        self._flights: set[asyncio.Task[None]] = set()
        self._patience = asyncio.Semaphore(PATIENT_FLIGHTS)

    async def run(self, shared: Shared[Any, T]) -> T:
        """Run an item, with others where there are any."""
        held = False
        while True:
            try:
                lane = self._lanes.of(shared, held=held)
                if lane.is_empty and not lane.patient:
                    return await self._fly_alone(lane, shared)
                answer: T = await self._once(lane, shared)
            except HeldUp:
                held = True
            else:
                return answer

    async def _fly_alone(self, lane: Lane, shared: Shared[Any, T]) -> T:
        """Most calls meet nobody, and need no task of their own."""
        lane.flights += 1
        try:
            (answer,) = await self._transact(just(shared), patient=False)
            return answer
        finally:
            self._end_flight(lane, shared)

    async def _once(self, lane: Lane, shared: Shared[Any, Any]) -> Any:
        waiting = WaitingTask(shared, asyncio.get_running_loop().create_future())
        lane.pending.append(waiting)
        if lane.has_place and not lane.boarding:
            self._call_for_a_flight(lane, shared)
        return await waiting.future

    def _call_for_a_flight(self, lane: Lane, shared: Shared[Any, Any]) -> None:
        lane.flights += 1
        lane.boarding = True
        task = asyncio.get_running_loop().create_task(self._fly_all(lane))
        # The loop itself forgets tasks that nobody else remembers.
        self._flights.add(task)
        # Not at the end of the task: one that is cancelled before it began has no end.
        task.add_done_callback(lambda task: self._land(task, lane, shared))

    def _land(self, task: asyncio.Task[None], lane: Lane, shared: Shared[Any, Any]) -> None:
        self._flights.discard(task)
        if task.cancelled():
            # The loop is ending. Who is still there has its own reasons, and is taken along.
            lane.boarding = False
        self._end_flight(lane, shared)

    def _end_flight(self, lane: Lane, shared: Shared[Any, Any]) -> None:
        lane.flights -= 1
        lane.pending = [each for each in lane.pending if not _is_gone(each)]
        if lane.pending and lane.has_place and not lane.boarding:
            self._call_for_a_flight(lane, shared)
        self._lanes.leave(shared, lane)

    async def _fly_all(self, lane: Lane) -> None:
        while flying := self._board(lane):
            try:
                await self._fly(lane, flying)
            finally:
                lane.pending[:0] = [each for each in flying if not each.answered]

    def _board(self, lane: Lane) -> list[Waiting]:
        """The next flight, without those who have been cancelled."""
        lane.boarding = False
        while boarding := lane.board():
            here = [each for each in boarding if not _is_gone(each)]
            if here:
                return here
        return []

    async def _fly(self, lane: Lane, flying: Sequence[Waiting]) -> None:
        async def transact(some: Sequence[Waiting]) -> list[Any]:
            return await self._transact(together(some), patient=lane.patient)

        if lane.patient:
            async with self._patience:
                await run_async(flight(flying), transact)
        else:
            await run_async(flight(flying), transact)


def _is_gone(waiting: Waiting) -> bool:
    return isinstance(waiting, WaitingTask) and waiting.future.done()
