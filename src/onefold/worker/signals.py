"""Runs a worker in its own event loop until a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
from contextlib import contextmanager, nullcontext
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import FrameType

    from onefold.worker.worker import Worker

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
LATE: Final = 1.0
"""Seconds after the grace period until a process that has not ended is ended."""
Received: TypeAlias = tuple[int, float]
"""The number of a signal, and the seconds until the process is ended."""
OVER: Final[Received] = (0, 0.0)

log: logging.Logger = logging.getLogger("onefold.worker")


def run_until_signal(
    make: Callable[[], Worker], close: Callable[[], Awaitable[None]], *, supervised: bool = False
) -> None:
    """Run a worker; the first signal stops it, the second ends the process.

    The process also ends soon after the grace period, because a handler may block the event loop or
    ignore its cancellation. Under a supervisor a second signal is ignored: a service manager may
    signal all processes of a group, in addition to the supervisor. Outside the main thread there
    are no signals, and the worker runs until its process ends.
    """
    received: SimpleQueue[Received] = SimpleQueue()
    threading.Thread(target=_end_early, args=(received,), name="onefold-grace", daemon=True).start()
    try:
        with asyncio.Runner(loop_factory=_event_loop()) as runner:
            runner.run(_run(make, close, received, supervised=supervised))
    finally:
        received.put(OVER)


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of uvloop if it is installed: it takes a third less of the processor for a job."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


async def _run(
    make: Callable[[], Worker],
    close: Callable[[], Awaitable[None]],
    received: SimpleQueue[Received],
    *,
    supervised: bool,
) -> None:
    worker = make()
    # Modules and declared jobs stay. To look through them takes 20 ms, in which no handler runs.
    gc.collect()
    gc.freeze()
    try:
        signals = _Signals(worker, received, supervised=supervised)
        with signals.handled() if _in_main_thread() else nullcontext():
            await worker.run()
    finally:
        gc.unfreeze()
        await close()


class _Signals:
    """Handles signals while a worker runs."""

    def __init__(
        self, worker: Worker, received: SimpleQueue[Received], *, supervised: bool
    ) -> None:
        self._worker = worker
        self._received = received
        self._supervised = supervised
        self._loop = asyncio.get_running_loop()
        self._count = 0

    @contextmanager
    def handled(self) -> Generator[None]:
        """Install the handlers, and restore the previous ones at the end."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            # The loop's handler only wakes the loop. Python's handler decides: it is called even
            # while a job's handler blocks the loop.
            self._loop.add_signal_handler(number, _only_wake)
            signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number, handler in before.items():
                self._loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        self._count += 1
        is_first = self._count == 1
        if is_first or not self._supervised:
            self._received.put((number, self._worker.settings.grace.total_seconds() + LATE))
        if is_first:
            self._loop.call_soon_threadsafe(self._stop, number)

    def _stop(self, number: int) -> None:
        more = "" if self._supervised else " A second signal ends the process now."
        log.info("%s: stopping.%s", signal.Signals(number).name, more)
        self._worker.stop()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _only_wake() -> None:
    """`_receive` handles the signal."""


def _end_now(number: int) -> None:
    try:
        log.warning("Second signal: ending now. Running jobs run again when their leases end.")
        logging.shutdown()
    finally:
        os._exit(128 + number)


def _end_early(received: SimpleQueue[Received]) -> None:
    """End the process at its deadline or at a second signal, even if the event loop is blocked.

    In a thread: the signal may have interrupted a write to the log.
    """
    number, seconds = received.get()
    if not number:
        return
    try:
        number, _ = received.get(timeout=seconds)
    except Empty:
        log.error("The grace period is over and a handler has not ended: ending now, without it.")  # noqa: TRY400
        os._exit(1)
    if number:
        _end_now(number)
