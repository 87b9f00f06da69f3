"""The deadline of a caller: what it only reads ends there. Writes are not interrupted.

The caller that has a deadline, such as a request of the server, sets `deadline_of_caller`.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Final, Protocol


class CallDeadline(Protocol):
    """The deadline of a task and its threads."""

    at: float
    """By `time.monotonic`."""

    @property
    def is_ours(self) -> bool:
        """False in a task that has inherited the context of its creator, and may outlive it."""
        ...


deadline_of_caller: Final[ContextVar[CallDeadline | None]] = ContextVar("deadline", default=None)


def reading_until() -> float | None:
    """When a statement of this caller that only reads has to end, by `time.monotonic`."""
    deadline = deadline_of_caller.get()
    return deadline.at if deadline is not None and deadline.is_ours else None


def seconds_until(at: float) -> float:
    """The seconds until a deadline; `TimeoutError` if it is over."""
    left = at - time.monotonic()
    if left <= 0:
        raise TimeoutError("The deadline of the caller is over.")
    return left
