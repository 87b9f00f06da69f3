"""Deadlines of requests, without one timer for each.

One check, ten times a second, finds the deadlines that are over. Most requests end long before. A
cancellation is repeated, because it can get lost: before Python 3.12, `asyncio.wait_for` drops a
cancel that arrives together with the result, and database drivers use it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from onefold.databases.deadline import deadline_of_caller

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

LOOK: Final = 0.1
"""Seconds between two checks: how late a deadline may be."""
AGAIN: Final = 3.0
"""Seconds after which a task that still runs is cancelled again."""


class Deadlines:
    """The deadlines of one server."""

    def __init__(self, *, again: float = AGAIN) -> None:
        """Start without deadlines."""
        self.again: float = again
        self.watch: _Watch | None = None
        """That of the last event loop. A deadline refers to its own one until it ends."""


class Deadline:
    """Cancels the current task when the time is over, and raises `TimeoutError`.

    What the task reads from the database ends then, too, also in threads.

    with Deadline(server.deadlines, 15) as deadline: ...
    """

    __slots__ = (
        "_again", "_cancelling", "_interrupts", "_outer", "_task", "_watch", "at", "wake_at"
    )  # fmt: skip

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        """The time starts now."""
        loop = asyncio.get_running_loop()
        watch = deadlines.watch
        if watch is None or watch.loop is not loop:
            watch = deadlines.watch = _Watch(loop)
        self._watch = watch
        self._again = deadlines.again
        self._interrupts = 0
        self.put_off(seconds)

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.at

    @property
    def is_ours(self) -> bool:
        """Whether this is the task, or a thread that it has called."""
        try:
            return asyncio.current_task() is self._task
        except RuntimeError:
            return True

    def put_off(self, seconds: float) -> None:
        """Start the time again, with this length."""
        self.at: float = time.monotonic() + seconds
        self.wake_at: float = self.at

    def __enter__(self) -> Self:
        """Start."""
        task = asyncio.current_task()
        assert task is not None
        self._outer = deadline_of_caller.set(self)
        self._task = task
        self._cancelling = task.cancelling()
        watch = self._watch
        watch.open[self] = None
        if not watch.is_looking:
            watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As `asyncio.timeout` does: a task that was also cancelled elsewhere stays cancelled."""
        deadline_of_caller.reset(self._outer)
        self._watch.open.pop(self, None)
        if not self._interrupts:
            return
        left = min(self._task.uncancel() for _ in range(self._interrupts))
        ours = left <= self._cancelling
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def interrupt(self) -> None:
        """Cancel the task: the time is over."""
        self._interrupts += 1
        self._task.cancel()
        self.wake_at = time.monotonic() + self._again


class _Watch:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.open: dict[Deadline, None] = {}
        self.is_looking: bool = False

    def start(self) -> None:
        self.is_looking = True
        self.loop.call_later(LOOK, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        for deadline in [each for each in self.open if each.wake_at <= now]:
            deadline.interrupt()
        self.is_looking = bool(self.open)
        if self.is_looking:
            self.start()
