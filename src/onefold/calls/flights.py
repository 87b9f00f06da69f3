"""Flights: what a worker has to say about its deliveries, and what it takes, in one round trip.

The hot path of a worker. What is given here comes from takes of ours, so nothing is checked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.calls.turns import Turns
from onefold.operations import deliveries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.databases import Build
    from onefold.model.delivery import Ended, TakeOrder
    from onefold.model.job import Job
    from onefold.operations.deliveries import Finish
    from onefold.operations.statement import Operation, Sql


class Flights:
    """Finish and take, never waiting for anybody's lock; and land, which waits."""

    def __init__(self, conductor: Conductor) -> None:
        """On the database of `conductor`."""
        self._conductor = conductor
        self._turns = Turns()

    async def fly(
        self, finishes: Sequence[Finish], order: TakeOrder | None
    ) -> tuple[list[Ended], list[Job]]:
        """Complete deliveries and take jobs.

        A delivery that is answered as lost while its job is alive may only have been locked, or
        have a successor: ask for it again by `land`.
        """
        return await self._conductor.arun(self._fly(finishes, order))

    def _fly(
        self, finishes: Sequence[Finish], order: TakeOrder | None
    ) -> Procedure[tuple[list[Ended], list[Job]]]:
        turn = 0 if order is None else self._turns.next(order.queues)
        answer: tuple[list[Ended], list[Job]] = yield Transaction(
            finish_then_take(finishes, order, turn)
        )
        return answer

    async def return_taken(self, takes: Sequence[str]) -> int:
        """Hand back what takes without an answer have leased; answers how many jobs."""
        return await self._conductor.arun(_return_taken(takes))

    async def land(self, finishes: Sequence[Finish]) -> list[Ended]:
        """Complete deliveries, waiting for those who have their rows."""
        return await self._conductor.arun(_land(finishes))


def _return_taken(takes: Sequence[str]) -> Procedure[int]:
    returned: int = yield Transaction(lambda sql: deliveries.return_taken(sql, takes))
    return returned


def _land(finishes: Sequence[Finish]) -> Procedure[list[Ended]]:
    ended: list[Ended] = yield Transaction(lambda sql: deliveries.finish(sql, finishes))
    return ended


def finish_then_take(
    finishes: Sequence[Finish], order: TakeOrder | None, turn: int
) -> Build[tuple[list[Ended], list[Job]]]:
    """Both in one transaction; rows that somebody has locked are passed over."""

    def build(sql: Sql) -> Operation[tuple[list[Ended], list[Job]]]:
        if order is None:
            return (yield from deliveries.finish(sql, finishes, skip_locked=True)), []
        yield from begin_take(sql, order)
        if not finishes:
            return [], (yield from deliveries.take_in_turn(sql, order, turn=turn))
        return (yield from deliveries.finish_and_take(sql, finishes, order, turn=turn))

    return build


def begin_take(sql: Sql, order: TakeOrder) -> Operation[None]:
    """Give a try of a take its id.

    What an earlier one has leased, whose answer was lost, goes back before more is taken. It may
    also be committed later than this: the worker asks again.
    """
    lost = list(order.tries)
    order.tries.append(str(uuid4()))
    if lost and sql.resends:
        yield from deliveries.return_taken(sql, lost)
