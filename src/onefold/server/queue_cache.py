"""`QueueCache`: the settings of queues in memory, for publishes.

Writes of other processes are seen within a second, writes of this process at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from onefold.errors import DatabaseUnavailable, QueueNotFound
from onefold.model.queue import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.app.onefold import Onefold

FRESH: Final = 1.0
"""Seconds for which settings are cached."""
PATIENCE: Final = 10.0
"""Seconds after which a query is given up, with its connection."""
MOST: Final = 10_000
"""Queues in memory; the one that was read longest ago is dropped."""

Place: TypeAlias = tuple[str, str]
"""Tenant and name."""


class _Query(msgspec.Struct, frozen=True):
    task: asyncio.Task[QueueSettings]
    at: float


class QueueCache:
    """Settings by tenant and name. The absence of a queue is not cached."""

    def __init__(
        self, onefold: Onefold, *, fresh: float = FRESH, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start empty."""
        self._onefold = onefold
        self._fresh = fresh
        self._clock = clock
        self._queries: dict[Place, _Query] = {}

    async def get(self, tenant: str, name: str) -> QueueSettings:
        """The settings of a queue; raises `QueueNotFound`."""
        place, now = (tenant, name), self._clock()
        query = self._queries.get(place)
        if query is None or now - query.at >= self._fresh:
            # Also if an older query is still running: its connection may hang.
            self._queries.pop(place, None)
            query = _Query(asyncio.create_task(self._read(place)), now)
            self._queries[place] = query
            if len(self._queries) > MOST:
                del self._queries[next(iter(self._queries))]
        if query.task.done():
            return query.task.result()
        # All waiting callers share one query; the end of one caller does not cancel it.
        return await asyncio.shield(query.task)

    def forget(self, tenant: str, name: str) -> None:
        """Drop the settings after a change. A running query may return the old ones."""
        self._queries.pop((tenant, name), None)

    async def _read(self, place: Place) -> QueueSettings:
        try:
            return await self._look(*place)
        except BaseException:
            query = self._queries.get(place)
            if query is not None and query.task is asyncio.current_task():
                del self._queries[place]
            raise

    async def _look(self, tenant: str, name: str) -> QueueSettings:
        calls = self._onefold.tenant(tenant) if tenant else self._onefold
        try:
            async with asyncio.timeout(PATIENCE):
                queue = await calls.queues.aget(name)
        except TimeoutError as error:
            reason = f"it did not answer within {PATIENCE:g} seconds."
            raise DatabaseUnavailable("The database", reason) from error
        if queue is None:
            raise QueueNotFound(name)
        return queue
