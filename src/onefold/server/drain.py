"""Drain at a stop signal: end the streams, so that the server can stop.

Servers end the lifespan after all connections have ended, and a stream does not end by itself.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import contextmanager
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
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    chained = [_chain(number, loop, drain) for number in SIGNALS]
    try:
        yield
    finally:
        for unchain in chained:
            unchain()


def _chain(
    number: signal.Signals, loop: asyncio.AbstractEventLoop, drain: Callable[[], None]
) -> Callable[[], None]:
    before = signal.getsignal(number)
    if not callable(before):
        return _nothing
    known: Handler = before

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(drain)
        known(number, frame)

    def unchain() -> None:
        if signal.getsignal(number) is handle:
            _set(number, known)

    _set(number, handle)
    return unchain


def _set(number: signal.Signals, handler: Handler) -> None:
    signal.signal(number, handler)
    # As event loops do; they also receive signals by a file descriptor.
    signal.siginterrupt(number, False)  # noqa: FBT003 - its only form


def _nothing() -> None:
    """Do nothing: there was no handler to chain."""
