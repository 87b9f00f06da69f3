"""The queues as the path of a publish needs them: their settings, from memory.

What other processes write is seen here within a second; what this one writes, at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from onefold.model.served_queue import QueueConfiguration
from onefold.server.problems import QueueNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.app import Onefold

FRESH: Final = 1.0
"""Seconds for which what was read is believed."""
MOST: Final = 10_000
"""Queues in memory; the one that was read longest ago makes room."""

Place: TypeAlias = tuple[str, str]
"""Tenant and name."""


class _Known(msgspec.Struct, frozen=True, gc=False):
    configuration: QueueConfiguration
    until: float


class QueueCache:
    """Settings by tenant and name. That there is no such queue is asked anew each time."""

    def __init__(
        self, onefold: Onefold, *, fresh: float = FRESH, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is known yet."""
        self._onefold = onefold
        self._fresh = fresh
        self._clock = clock
        self._known: dict[Place, _Known] = {}
        self._asked: dict[Place, asyncio.Task[QueueConfiguration]] = {}

    async def get(self, tenant: str, name: str) -> QueueConfiguration:
        """The settings of a queue; raises `QueueNotFound`."""
        place = (tenant, name)
        known = self._known.get(place)
        if known is not None and self._clock() < known.until:
            return known.configuration
        task = self._asked.get(place)
        if task is None:
            task = self._asked[place] = asyncio.create_task(self._read(place))
        # One question for all who wait for its answer, whoever of them goes away.
        return await asyncio.shield(task)

    def forget(self, tenant: str, name: str) -> None:
        """The settings have changed. An answer that is under way may be the old one."""
        self._known.pop((tenant, name), None)
        self._asked.pop((tenant, name), None)

    async def _read(self, place: Place) -> QueueConfiguration:
        tenant, name = place
        asked_at = self._clock()
        try:
            calls = self._onefold.tenant(tenant) if tenant else self._onefold
            queue = await calls.aserved_queue(name)
            if queue is None:
                raise QueueNotFound(name)
            if self._is_awaited(place):
                self._keep(place, _Known(queue.configuration, asked_at + self._fresh))
            return queue.configuration
        finally:
            if self._is_awaited(place):
                del self._asked[place]

    def _is_awaited(self, place: Place) -> bool:
        """False where somebody has written meanwhile."""
        return self._asked.get(place) is asyncio.current_task()

    def _keep(self, place: Place, known: _Known) -> None:
        self._known.pop(place, None)
        self._known[place] = known
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]
