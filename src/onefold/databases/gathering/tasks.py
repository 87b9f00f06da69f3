"""Group commit among the tasks of one event loop: a flight is a task of its own.

A caller that is cancelled leaves its flight to the others. A flight leaves one turn of the loop
after it was called for, so whoever asks in the same turn is on it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from onefold.databases.gathering import HeldUp, Lane, Lanes, Shared, Waiting, flight, together
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
        while True:
            try:
                answer: T = await self._once(shared)
            except HeldUp:
                self._lanes.part(shared)
            else:
                return answer

    async def _once(self, shared: Shared[Any, Any]) -> Any:
        loop = asyncio.get_running_loop()
        waiting = WaitingTask(shared, loop.create_future())
        lane = self._lanes.of(shared)
        lane.pending.append(waiting)
        if lane.has_place and not lane.boarding:
            lane.flights += 1
            lane.boarding = True
            task = loop.create_task(self._fly_all(lane, shared))
            # The loop itself forgets tasks that nobody else remembers.
            self._flights.add(task)
            task.add_done_callback(self._flights.discard)
        return await waiting.future

    async def _fly_all(self, lane: Lane, shared: Shared[Any, Any]) -> None:
        try:
            while flying := self._board(lane):
                await self._fly(lane, flying)
        finally:
            lane.flights -= 1
            self._lanes.leave(shared, lane)

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

        try:
            if lane.patient:
                async with self._patience:
                    await run_async(flight(flying), transact)
            else:
                await run_async(flight(flying), transact)
        finally:
            # The loop is ending, and somebody cancels what is left. It is the callers' turn to say.
            for each in flying:
                if not each.answered:
                    each.again()


def _is_gone(waiting: Waiting) -> bool:
    return isinstance(waiting, WaitingTask) and waiting.future.done()
