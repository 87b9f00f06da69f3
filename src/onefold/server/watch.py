"""A look at a tenant's queues from time to time: what the database knows of all processes."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import DatabaseError
from onefold.server.told import COUNTED, stamped
from onefold.server.wire import iso_or_none

if TYPE_CHECKING:
    from onefold.app import Tenant
    from onefold.model.served_queue import ServedQueue
    from onefold.server.feed import Tell

EVERY: Final = 2.0
"""Seconds between looks."""
SHARE: Final = 0.05
"""A look that takes long is repeated less often: no more than this part of the time is looked."""
MOST: Final = 1000
"""Queues that are looked at, by name."""

log: logging.Logger = logging.getLogger("onefold.server")


async def watch_queues(calls: Tenant, tell: Tell) -> None:
    """Tell of every queue that has changed since the last look, until cancelled."""
    seen: dict[str, dict[str, Any]] | None = None
    while True:
        started = time.monotonic()
        try:
            queues = await calls.aserved_queues(limit=MOST, counts=True)
        except DatabaseError as error:
            log.warning("The queues could not be counted for those who listen: %s", error)
        else:
            found = {queue.name: _said(queue) for queue in queues}
            for name, said in found.items():
                if seen is not None and seen.get(name) != said:
                    tell(COUNTED, name, stamped({"queue": name, **said}))
            seen = found
        await asyncio.sleep(max(EVERY, (time.monotonic() - started) / SHARE))


def _said(queue: ServedQueue) -> dict[str, Any]:
    counts = {} if queue.counts is None else msgspec.structs.asdict(queue.counts)
    held = {"heldUntil": iso_or_none(queue.held_until), "heldWhy": queue.held_why}
    return {**counts, "paused": queue.paused, **held}
