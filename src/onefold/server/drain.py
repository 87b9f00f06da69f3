"""Drain at a stop signal: end the streams, so that the server can stop.

Servers end the lifespan after all connections have ended, and a stream does not end by itself.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator

Handler: TypeAlias = Callable[[int, FrameType | None], object]

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def draining_at_signals(drain: Callable[[], None]) -> Generator[None]:
    """Call `drain` in the event loop at a signal, and then the existing handler.

    A signal without a handler is left alone, and all signals outside of the main thread.
    """
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if callable(before):
                    stack.enter_context(_chained(number, before, drain))
        yield


@contextmanager
def _chained(number: signal.Signals, before: Handler, drain: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(drain)
        before(number, frame)

    _set(number, handle)
    try:
        yield
    finally:
        if signal.getsignal(number) is handle:
            _set(number, before)


def _set(number: signal.Signals, handler: Handler) -> None:
    signal.signal(number, handler)
    # As event loops do; they also receive signals by a file descriptor.
    signal.siginterrupt(number, False)  # noqa: FBT003 - its only form
