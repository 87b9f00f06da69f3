"""The line between a supervisor and its processes: a pipe that nobody ever writes to.

When the supervisor is gone, however it went, the other end of the pipe is closed, and whoever holds
on to it knows.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import timedelta

MARGIN: Final = 5.0
"""Seconds beyond the grace after which a process that should have ended is ended."""


def hold(descriptor: int, grace: timedelta) -> None:
    """Stop when the supervisor is gone, as if it had said so; end at last, whatever happens."""
    # What handlers start must not hold the line, nor know of it.
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - its way
    threading.Thread(
        target=_wait, args=(descriptor, grace.total_seconds()), name="onefold-lifeline", daemon=True
    ).start()


def _wait(descriptor: int, grace: float) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace + MARGIN)
    os._exit(1)
