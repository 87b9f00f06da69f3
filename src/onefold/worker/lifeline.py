"""How a process notices that the one which started it is gone, however it went.

A worker's process has one end of a pipe whose other end closes with its supervisor. A server's
process, which is started by granian, looks at the number of its parent.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import timedelta

LOOK: Final = 1.0
"""Seconds between two looks at the parent."""
MARGIN: Final = 5.0
"""Seconds beyond the grace after which a process that should have ended is ended."""


def hold(descriptor: int, grace: timedelta) -> None:
    """Stop when the supervisor is gone, as if it had said so; end at last, whatever happens."""
    # What handlers start must not hold the line, nor know of it.
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - its way
    threading.Thread(
        target=_wait, args=(descriptor, grace.total_seconds()), name="onefold-lifeline", daemon=True
    ).start()


def hold_to_parent(parent: int, grace: timedelta) -> None:
    """The same for a process that has no pipe. `parent` is the process that started it."""
    threading.Thread(
        target=_look, args=(parent, grace.total_seconds()), name="onefold-lifeline", daemon=True
    ).start()


def _wait(descriptor: int, grace: float) -> None:
    os.read(descriptor, 1)
    _end(grace)


def _look(parent: int, grace: float) -> None:
    # An orphan gets another parent.
    while os.getppid() == parent:
        time.sleep(LOOK)
    _end(grace)


def _end(grace: float) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace + MARGIN)
    os._exit(1)
