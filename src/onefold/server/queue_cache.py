"""`QueueCache`: the settings of queues in memory, for publishes.

Writes of other processes are seen within a second, writes of this process at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from onefold.errors import DatabaseUnavailable
from onefold.model.queue import QueueConfiguration
from onefold.server.problems import UnknownQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.app.onefold import Onefold
    from onefold.model.queue import ServedQueue

FRESH: Final = 1.0
"""Seconds for which settings are cached."""
PATIENCE: Final = 10.0
"""Seconds after which a query is given up, with its connection."""
MOST: Final = 10_000
"""Queues in memory; the one that was read longest ago is dropped."""

Place: TypeAlias = tuple[str, str]
"""Tenant and name."""


class _Asked(msgspec.Struct, frozen=True):
    task: asyncio.Task[QueueConfiguration]
    at: float


class _Known(msgspec.Struct, frozen=True, gc=False):
    configuration: QueueConfiguration
    until: float


class QueueCache:
    """Settings by tenant and name. The absence of a queue is not cached."""

    def __init__(
        self, onefold: Onefold, *, fresh: float = FRESH, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start empty."""
        self._onefold = onefold
        self._fresh = fresh
        self._clock = clock
        self._known: dict[Place, _Known] = {}
        self._asked: dict[Place, _Asked] = {}

    async def get(self, tenant: str, name: str) -> QueueConfiguration:
        """The settings of a queue; raises `UnknownQueue`."""
        place = (tenant, name)
        known, now = self._known.get(place), self._clock()
        if known is not None and now < known.until:
            return known.configuration
        asked = self._asked.get(place)
        if asked is None or now - asked.at >= self._fresh:
            # Also if an older query is still running: its connection may hang.
            asked = self._asked[place] = _Asked(asyncio.create_task(self._read(place, now)), now)
        # All waiting callers share one query; the end of one caller does not cancel it.
        return await asyncio.shield(asked.task)

    def forget(self, tenant: str, name: str) -> None:
        """Drop the settings after a change. A running query may return the old ones."""
        self._known.pop((tenant, name), None)
        self._asked.pop((tenant, name), None)

    async def _read(self, place: Place, asked_at: float) -> QueueConfiguration:
        tenant, name = place
        try:
            queue = await self._look(tenant, name)
            if queue is None:
                raise UnknownQueue(name)
            if self._is_awaited(place):
                self._keep(place, _Known(queue.configuration, asked_at + self._fresh))
            return queue.configuration
        finally:
            if self._is_awaited(place):
                del self._asked[place]

    async def _look(self, tenant: str, name: str) -> ServedQueue | None:
        calls = self._onefold.tenant(tenant) if tenant else self._onefold
        try:
            async with asyncio.timeout(PATIENCE):
                return await calls.queues.aget(name)
        except TimeoutError as error:
            reason = f"it did not answer within {PATIENCE:g} seconds."
            raise DatabaseUnavailable("The database", reason) from error

    def _is_awaited(self, place: Place) -> bool:
        """False if the settings were changed meanwhile."""
        asked = self._asked.get(place)
        return asked is not None and asked.task is asyncio.current_task()

    def _keep(self, place: Place, known: _Known) -> None:
        self._known.pop(place, None)
        self._known[place] = known
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]
