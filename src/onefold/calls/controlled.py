"""The engine's calls for queues that have limits, an order or groups: look, and take under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.calls.flights import begin_take
from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.model.delivery import TakeOrder, take_order
from onefold.model.queue import Outlook, queue_names
from onefold.operations import queues
from onefold.operations.limited_take import take_controlled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from onefold.operations.queues import TakenUnderControl
    from onefold.operations.statement import Operation, Sql

REMEMBERED: Final = 1_000


class ControlledCalls:
    """What the engine asks about queues, beside the plain take."""

    def __init__(self, conductor: Conductor) -> None:
        """On the database of `conductor`."""
        self._conductor = conductor
        self._after: dict[str, str] = {}
        """By queue: the group with which its last take has ended."""

    def look(self, queues: Sequence[str] = ("default",)) -> list[Outlook]:
        """What there is to do in some queues, and when there will be more: one statement."""
        return self._conductor.run(_look(queue_names(queues)))

    async def alook(self, queues: Sequence[str] = ("default",)) -> list[Outlook]:
        """`look`, awaited."""
        return await self._conductor.arun(_look(queue_names(queues)))

    def take_controlled(
        self,
        queue: str = "default",
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
        unknown: Sequence[str] = (),
        tries: list[str] | None = None,
    ) -> TakenUnderControl:
        """Lease due jobs of a queue as its limits and its order allow, groups in turn.

        By priority, run_at and id, over all shards. Kinds that are `unknown` are left alone.
        `tries` receives the ids of the takes: only the last of them can have been answered.
        """
        order = take_order(
            [queue], limit=limit, worker=worker, lease=lease, unknown=unknown, tries=tries
        )
        return self._conductor.run(self._take_controlled(queue, order))

    async def atake_controlled(
        self,
        queue: str = "default",
        *,
        limit: int = 1,
        worker: str,
        lease: timedelta,
        unknown: Sequence[str] = (),
        tries: list[str] | None = None,
    ) -> TakenUnderControl:
        """`take_controlled`, awaited."""
        order = take_order(
            [queue], limit=limit, worker=worker, lease=lease, unknown=unknown, tries=tries
        )
        return await self._conductor.arun(self._take_controlled(queue, order))

    def _take_controlled(self, queue: str, order: TakeOrder) -> Procedure[TakenUnderControl]:
        after = self._after.get(queue, "")

        def build(sql: Sql) -> Operation[TakenUnderControl]:
            yield from begin_take(sql, order)
            return (yield from take_controlled(sql, order, queue, after=after))

        taken: TakenUnderControl = yield Transaction(build)
        if taken.after != after:
            if len(self._after) >= REMEMBERED:
                self._after.clear()
            self._after[queue] = taken.after
        return taken


def _look(names: list[str]) -> Procedure[list[Outlook]]:
    seen: list[Outlook] = yield Transaction(lambda sql: queues.look(sql, names), write=False)
    return seen
