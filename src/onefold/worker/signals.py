"""A worker by itself: an event loop for it, and signals that stop it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from contextlib import contextmanager, nullcontext
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import FrameType

    from onefold.worker.worker import Worker

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
LATE: Final = 1.0
"""Seconds beyond the grace after which a process that should have ended is ended."""
OVER: Final = 0.0

log: logging.Logger = logging.getLogger("onefold.worker")


def run_until_signal(
    make: Callable[[], Worker], close: Callable[[], Awaitable[None]], *, supervised: bool = False
) -> None:
    """Run a worker; the first signal stops it, the second ends the process.

    So does the end of the grace, a little later: a handler that keeps the event loop from running,
    or does not let itself be cancelled, leaves no other way. Under a supervisor, the second is the
    supervisor's to give: a service manager that signals all processes of a group would otherwise be
    taken for somebody in a hurry. Outside of the main thread there are no signals: it then runs
    until its process ends.
    """
    told: SimpleQueue[float] = SimpleQueue()
    threading.Thread(target=_end_late, args=(told,), name="onefold-grace", daemon=True).start()
    try:
        asyncio.run(_run(make, close, told, supervised=supervised))
    finally:
        told.put(OVER)


async def _run(
    make: Callable[[], Worker],
    close: Callable[[], Awaitable[None]],
    told: SimpleQueue[float],
    *,
    supervised: bool,
) -> None:
    worker = make()
    try:
        signals = _Signals(worker, told, supervised=supervised)
        with signals.heard() if _in_main_thread() else nullcontext():
            await worker.run()
    finally:
        await close()


class _Signals:
    """What signals mean while a worker runs."""

    def __init__(self, worker: Worker, told: SimpleQueue[float], *, supervised: bool) -> None:
        self._worker = worker
        self._told = told
        self._supervised = supervised
        self._loop = asyncio.get_running_loop()
        self._count = 0

    @contextmanager
    def heard(self) -> Generator[None]:
        """Hear them, and give them back their meaning afterwards."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            # The loop's own handler only wakes it up. What is decided is decided in Python's, which
            # is called even where a handler of a job keeps the loop from running.
            self._loop.add_signal_handler(number, _nothing)
            signal.signal(number, self._hear)
        try:
            yield
        finally:
            for number, handler in before.items():
                self._loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            self._told.put(self._worker.settings.grace.total_seconds() + LATE)
            self._loop.call_soon_threadsafe(self._stop, number)
        elif not self._supervised:
            _end_now(number)

    def _stop(self, number: int) -> None:
        more = "" if self._supervised else " A second signal ends it now."
        log.info("%s: stopping.%s", signal.Signals(number).name, more)
        self._worker.stop()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _nothing() -> None:
    """The signal has been heard elsewhere."""


def _end_now(number: int) -> None:
    try:
        log.warning("A second signal: ending now. Its jobs run again when their leases end.")
        logging.shutdown()
    finally:
        os._exit(128 + number)


def _end_late(told: SimpleQueue[float]) -> None:
    """In a thread of its own: once told to stop, the process ends, one way or another."""
    if (seconds := told.get()) == OVER:
        return
    try:
        told.get(timeout=seconds)
    except Empty:
        log.error("The grace is over, and a handler would not end: ending now, without it.")  # noqa: TRY400
        os._exit(1)
