"""Renews the leases of the deliveries that a worker holds, in one statement per interval.

In its own thread: a handler that blocks the event loop must not cost other jobs their leases.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable

    from onefold.model.delivery import Delivery
    from onefold.worker.deliveries import DeliveryCalls
    from onefold.worker.settings import WorkerSettings

log: logging.Logger = logging.getLogger("onefold.worker")


class Heartbeats:
    """Renews until it is stopped, and reports lost deliveries to the event loop."""

    def __init__(
        self,
        deliveries: DeliveryCalls,
        settings: WorkerSettings,
        held: Callable[[], Iterable[Delivery]],
        lost: Callable[[list[Delivery]], None],
    ) -> None:
        """`held` is called in the thread, `lost` in the event loop."""
        self._calls = deliveries
        self._settings = settings
        self._held = held
        self._lost = lost
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop: AbstractEventLoop) -> None:
        """Start the thread."""
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name="onefold-heartbeats", daemon=True
        )
        self._thread.start()

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
        deliveries = list(self._held())
        beats = self._calls.heartbeat(deliveries, lease=self._settings.lease)
        return [delivery for delivery, beat in zip(deliveries, beats, strict=True) if beat.lost]
