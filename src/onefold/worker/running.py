"""A worker by itself: an event loop for it, and signals that stop it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.worker.worker import Worker

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("onefold.worker")


def run_until_signal(make: Callable[[], Worker], close: Callable[[], Awaitable[None]]) -> None:
    """Run a worker; the first signal stops it, the second ends the process.

    Outside of the main thread there are no signals: it then runs until its process ends.
    """
    asyncio.run(_run(make, close))


async def _run(make: Callable[[], Worker], close: Callable[[], Awaitable[None]]) -> None:
    worker = make()
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def stop(number: int) -> None:
        if received:
            log.warning("A second signal: ending now. Its jobs run again when their leases end.")
            logging.shutdown()
            os._exit(128 + number)
        received.append(number)
        log.info("%s: stopping. A second signal ends it now.", signal.Signals(number).name)
        worker.stop()

    signals = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    for number in signals:
        loop.add_signal_handler(number, stop, number)
    try:
        await worker.run()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        await close()
