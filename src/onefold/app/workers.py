"""`Workers`: which workers run, and how many jobs each of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.operations import workers

if TYPE_CHECKING:
    from onefold.app.context import Context
    from onefold.model.statistics import WorkerStatus


class Workers:
    """The workers of an installation, push workers of servers included."""

    def __init__(self, context: Context) -> None:
        """Of all tenants."""
        self._context = context

    def find(self) -> tuple[WorkerStatus, ...]:
        """All workers, by name.

        A worker that stops is gone from the list. One that was killed is shown as not alive after
        two minutes, and for about an hour.
        """
        return self._context.runtime.run(self._context.shards.read("workers", workers.find))

    async def afind(self) -> tuple[WorkerStatus, ...]:
        """`find`, awaited."""
        return await self._context.runtime.arun(self._context.shards.read("workers", workers.find))
