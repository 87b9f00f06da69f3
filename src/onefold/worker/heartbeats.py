"""Renews the leases of the deliveries that a worker holds, in one statement per interval.

In its own thread: a handler that blocks the event loop must not cost other jobs their leases.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from onefold.errors import OnefoldError
from onefold.model.timestamps import span
from onefold.operations.deliveries import heartbeat
from onefold.worker.executor import lease_time

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Mapping, Sequence

    from onefold.app.context import Context
    from onefold.model.delivery import Delivery, Heartbeat
    from onefold.worker.executor import HeldDelivery
    from onefold.worker.settings import WorkerSettings

log: logging.Logger = logging.getLogger("onefold.worker")


class Heartbeats:
    """Renews until it is stopped, and reports lost deliveries to the event loop."""

    def __init__(
        self,
        context: Context,
        settings: WorkerSettings,
        held: Mapping[Delivery, HeldDelivery],
        lost: Callable[[list[Delivery]], None],
    ) -> None:
        """The thread reads `held` and sets the ends of leases; the event loop calls `lost`."""
        self._runtime = context.runtime
        self._shards = context.shards
        self._settings = settings
        self._held = held
        self._lost = lost
        self._stopped = threading.Event()

    def start(self, loop: AbstractEventLoop) -> None:
        """Start the thread."""
        threading.Thread(
            target=self._run, args=(loop,), name="onefold-heartbeats", daemon=True
        ).start()

    def stop(self) -> None:
        """Renew no more."""
        self._stopped.set()

    def _run(self, loop: AbstractEventLoop) -> None:
        pause = self._settings.heartbeat.total_seconds()
        failing = False
        while not self._stopped.wait(pause / 4 if failing else pause):
            try:
                lost = self._renew()
            except OnefoldError as error:
                # Not lost yet: the fence decides. The next try comes earlier.
                log.warning("The heartbeat failed: %s", error)
                failing = True
            except Exception:
                # The thread must not end: all jobs would lose their leases.
                log.exception("The heartbeat failed.")
                failing = True
            else:
                failing = False
                if lost and not loop.is_closed():
                    loop.call_soon_threadsafe(self._lost, lost)

    def _renew(self) -> list[Delivery]:
        lease = self._settings.lease
        if not (held := list(self._held)):
            return []
        began = lease_time()
        renew = partial(heartbeat, lease=span(lease, "lease"))
        if self._shards.number == 1:
            beats: Sequence[Heartbeat | None] = self._runtime.store.transact(
                lambda sql: renew(sql, held)
            )
        else:
            # No shard is left out: a lease may end before its pause.
            beats, _ = self._runtime.run(
                self._shards.report("heartbeat", held, attrgetter("id"), renew, leave_out=False)
            )
        lost: list[Delivery] = []
        for delivery, beat in zip(held, beats, strict=True):
            if beat is not None and beat.lost:
                lost.append(delivery)
            elif beat is not None and (renewed := self._held.get(delivery)) is not None:
                renewed.leased_until = began + lease.total_seconds()
        return lost
