"""Deadlines of requests, for less than a timer each would cost.

One look, a few times a second, finds those that are over; nearly all requests end long before.

Who is interrupted may not hear it: before Python 3.12, `asyncio.wait_for` forgets a cancel that
comes together with what it waits for, and drivers of databases wait by it. So it is said again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

LOOK: Final = 0.1
"""Seconds between two looks: how late a deadline may be."""
AGAIN: Final = 3.0
"""Seconds after which it is said again; who has heard it has tidied up by then."""


class Deadlines:
    """Those of one server, by event loop."""

    def __init__(self, *, again: float = AGAIN) -> None:
        """None yet."""
        self._again = again
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()

    def within(self, seconds: float) -> Deadline:
        """For the task that runs: `with deadlines.within(15) as deadline: …`."""
        loop = asyncio.get_running_loop()
        watch = self._by_loop.get(loop)
        if watch is None:
            watch = self._by_loop[loop] = _Watch()
        return Deadline(watch, loop, seconds, again=self._again)


class Deadline:
    """Interrupts what is inside when its time is over; then it raises `TimeoutError`."""

    __slots__ = ("_again", "_cancelling", "_interrupts", "_loop", "_task", "_watch", "at")

    def __init__(
        self, watch: _Watch, loop: asyncio.AbstractEventLoop, seconds: float, *, again: float
    ) -> None:
        """Made by `Deadlines`."""
        self._watch = watch
        self._loop = loop
        self._again = again
        self._interrupts = 0
        self.at: float = loop.time() + seconds

    @property
    def is_over(self) -> bool:
        """Whether it has interrupted anybody."""
        return self._interrupts > 0

    def put_off(self, seconds: float) -> None:
        """From now on it has so long."""
        self.at = self._loop.time() + seconds

    def __enter__(self) -> Self:
        """The time runs."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._watch.add(self, self._loop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As `asyncio.timeout` has it: who was cancelled by others besides stays so."""
        self._watch.discard(self)
        if not self._interrupts:
            return
        left = min(self._task.uncancel() for _ in range(self._interrupts))
        ours = left <= self._cancelling
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def interrupt(self) -> None:
        """Its time is over."""
        self._interrupts += 1
        self._task.cancel()
        self.put_off(self._again)


class _Watch:
    """The deadlines of one event loop."""

    def __init__(self) -> None:
        self._open: dict[Deadline, None] = {}
        self._is_looking = False

    def add(self, deadline: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        self._open[deadline] = None
        if not self._is_looking:
            self._is_looking = True
            loop.call_later(LOOK, self._look, loop)

    def discard(self, deadline: Deadline) -> None:
        self._open.pop(deadline, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for deadline in [each for each in self._open if each.at <= now]:
            deadline.interrupt()
        self._is_looking = bool(self._open)
        if self._is_looking:
            loop.call_later(LOOK, self._look, loop)
