"""An operator's calls about queues: pause, resume, limits, and what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.calls.procedure import once_through
from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.queue import QueueLimits, queue_limits
from onefold.operations import queues

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onefold.calls.procedure import Conductor, Procedure
    from onefold.model.limit import Limit
    from onefold.model.queue import QueueSettings
    from onefold.operations.statement import Operation, Sql


class QueueCalls:
    """Queues are shared by all tenants, and so is what is said about them."""

    _conductor: Conductor
    _queue_limits: dict[str, QueueLimits]
    """What the code has declared."""

    def _declared_queues(self) -> Mapping[str, bool]:
        """The queues that the code declares, and whether jobs are declared for them."""
        raise NotImplementedError

    def pause(self, queue: str) -> None:
        """Give no more jobs of a queue to any worker. What is running goes on.

        A queue that is not known is an `InvalidInput`: one that this code does not declare, and of
        which the database has no settings, schedules or jobs.
        """
        self._conductor.run(_pause(queue, self._declared_queues()))

    async def apause(self, queue: str) -> None:
        """`pause`, awaited."""
        await self._conductor.arun(_pause(queue, self._declared_queues()))

    def resume(self, queue: str) -> None:
        """Let a paused queue go on. One that is not known is an `InvalidInput`, as for `pause`."""
        self._conductor.run(_resume(queue, self._declared_queues()))

    async def aresume(self, queue: str) -> None:
        """`resume`, awaited."""
        await self._conductor.arun(_resume(queue, self._declared_queues()))

    def set_limits(
        self,
        queue: str,
        *,
        limit: Limit | None = None,
        group_limit: Limit | None = None,
        ordered: bool = False,
    ) -> None:
        """Say what limits a queue has from now on: of all of it, and of each of its groups.

        An operator's word: it replaces what the code has declared, and stays until
        `clear_limits`. With `ordered`, the jobs of a group run one at a time, in the order of
        their enqueueing.
        """
        limits = _operators_limits(limit, group_limit, ordered=ordered)
        self._conductor.run(_set_limits(queue, limits))

    async def aset_limits(
        self,
        queue: str,
        *,
        limit: Limit | None = None,
        group_limit: Limit | None = None,
        ordered: bool = False,
    ) -> None:
        """`set_limits`, awaited."""
        limits = _operators_limits(limit, group_limit, ordered=ordered)
        await self._conductor.arun(_set_limits(queue, limits))

    def clear_limits(self, queue: str) -> None:
        """Take an operator's limits off a queue.

        What the code declares counts again when the next worker starts.
        """
        self._conductor.run(_clear_limits(queue))

    async def aclear_limits(self, queue: str) -> None:
        """`clear_limits`, awaited."""
        await self._conductor.arun(_clear_limits(queue))

    def declare_queues(self) -> None:
        """Store the limits that `queue` has declared, as every worker does when it starts.

        They replace what was declared before, and never what an operator has set.
        """
        self._conductor.run(_declare(self._queue_limits))

    async def adeclare_queues(self) -> None:
        """`declare_queues`, awaited."""
        await self._conductor.arun(_declare(self._queue_limits))

    def queues(self) -> list[QueueSettings]:
        """The queues that have settings or jobs to do, by name, with how many those are."""
        return self._conductor.run(once_through(queues.find, write=False))

    async def aqueues(self) -> list[QueueSettings]:
        """`queues`, awaited."""
        return await self._conductor.arun(once_through(queues.find, write=False))


def _operators_limits(
    limit: Limit | None, group_limit: Limit | None, *, ordered: bool
) -> QueueLimits:
    limits = queue_limits(limit, group_limit, ordered=ordered)
    if group_limit is not None and group_limit.key is not None:
        raise InvalidInput(
            "group_limit", "has a key, which says how the code groups its jobs: declare it there"
        )
    return limits


def _pause(queue: str, declared: Collection[str]) -> Procedure[None]:
    name = checks.queue(queue, "queue")

    def build(sql: Sql) -> Operation[None]:
        yield from queues.check_known(sql, name, declared)
        yield from queues.pause(sql, name)

    return once_through(build)


def _resume(queue: str, declared: Collection[str]) -> Procedure[None]:
    name = checks.queue(queue, "queue")

    def build(sql: Sql) -> Operation[None]:
        yield from queues.check_known(sql, name, declared)
        yield from queues.resume(sql, name)

    return once_through(build)


def _set_limits(queue: str, limits: QueueLimits) -> Procedure[None]:
    name = checks.queue(queue, "queue")
    return once_through(lambda sql: queues.set_limits(sql, name, limits))


def _declare(limits: dict[str, QueueLimits]) -> Procedure[None]:
    if limits:
        yield from once_through(lambda sql: queues.declare(sql, limits))


def _clear_limits(queue: str) -> Procedure[None]:
    name = checks.queue(queue, "queue")
    return once_through(lambda sql: queues.clear_limits(sql, name))
