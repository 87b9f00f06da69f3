"""The heart: keeps the leases of what a worker holds, running or waiting for its turn.

A thread of its own: a coroutine that forgets to await must not cost its neighbours their leases.
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
    """Beats until it is stopped, and tells the event loop which deliveries are lost."""

    def __init__(
        self,
        deliveries: DeliveryCalls,
        settings: WorkerSettings,
        held: Callable[[], Iterable[Delivery]],
        lost: Callable[[list[Delivery]], None],
    ) -> None:
        """`held` is asked in the heart's thread, `lost` is called in the event loop."""
        self._calls = deliveries
        self._settings = settings
        self._held = held
        self._lost = lost
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop: AbstractEventLoop) -> None:
        """Begin to beat."""
        self._thread = threading.Thread(
            target=self._beat_on, args=(loop,), name="onefold-heart", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._stopped.set()

    def _beat_on(self, loop: AbstractEventLoop) -> None:
        pause = self._settings.heartbeat.total_seconds()
        failing = False
        while not self._stopped.wait(pause / 4 if failing else pause):
            try:
                lost = self._beat()
            except OnefoldError as error:
                # Nothing is lost yet: the fence decides, and we try again sooner.
                log.warning("The heartbeat failed: %s", error)
                failing = True
            except Exception:
                # A heart that stops costs everybody their leases, whatever stopped it.
                log.exception("The heartbeat failed.")
                failing = True
            else:
                failing = False
                if lost and not loop.is_closed():
                    loop.call_soon_threadsafe(self._lost, lost)

    def _beat(self) -> list[Delivery]:
        deliveries = list(self._held())
        beats = self._calls.heartbeat(deliveries, lease=self._settings.lease)
        return [delivery for delivery, beat in zip(deliveries, beats, strict=True) if beat.lost]
