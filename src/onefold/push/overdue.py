"""Acks that do not come in time: seen soon after, by every process, and nobody asks all the time.

When one can be late is known: not before the first of those that are waited for, and of those that
will be, not before the shortest time that any queue gives, or gave since. Nobody asks before.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

log: logging.Logger = logging.getLogger("onefold.push")


class Overdue:
    """Knows when to look, and has done what is to be done then."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[timedelta | None]],
        rescue: Callable[[], Awaitable[object]],
        *,
        shortest: Callable[[], timedelta | None],
        now: Callable[[], datetime],
    ) -> None:
        """`ask` tells when the next ack is late; `shortest` is what a queue gives at least."""
        self._ask = ask
        self._rescue = rescue
        self._shortest = shortest
        self._now = now
        self._looked_at: datetime | None = None
        self._late_at: datetime | None = None
        """Before then none can be, of those that were waited for at the last look and since."""

    async def run(self, every: timedelta) -> None:
        """See whether it is time every so often, for ever."""
        while True:
            await asyncio.sleep(every.total_seconds())
            try:
                await self.look()
            except OnefoldError as error:
                log.warning("Whether acks are late could not be looked at: %s", error)
            except Exception:
                log.exception("Whether acks are late is looked at again later.")

    async def look(self) -> None:
        """Nothing, unless an ack may be late."""
        if not self._is_time():
            return
        wait = await self._asked()
        if wait is not None and wait <= timedelta(0):
            await self._rescue()
            await self._asked()

    async def _asked(self) -> timedelta | None:
        began = self._now()
        wait = await self._ask()
        self._looked_at = began
        self._late_at = None if wait is None else began + wait
        self._heed(began)
        return wait

    def _is_time(self) -> bool:
        if self._looked_at is None:
            return True  # somebody who is gone may have waited for some
        self._heed(self._looked_at)
        return self._late_at is not None and self._late_at <= self._now()

    def _heed(self, looked_at: datetime) -> None:
        """What a queue gives now may be another time, or none, when it is over."""
        shortest = self._shortest()
        if shortest is not None:
            late_at = looked_at + shortest
            self._late_at = late_at if self._late_at is None else min(self._late_at, late_at)
