"""A pool of threads for handlers that are plain functions.

Daemon threads: a handler that hangs must not keep the process from ending. A thread whose handler
was abandoned is replaced by another one.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Interrupted(BaseException):
    """Raised inside a handler to stop it. Not an Exception, so that few handlers catch it."""


class ThreadTask:
    """A call for a thread, with its own context."""

    def __init__(
        self, work: Callable[[], None], context: Context, abandon: Callable[[], None]
    ) -> None:
        """Does not start it; `abandon` is called if it is interrupted."""
        self._work = work
        self._context = context
        self._abandon = abandon
        self._thread: int | None = None
        self._lock = threading.Lock()
        self._has_ended = False
        self.abandoned: bool = False
        """Its thread, if it has one, takes no other task."""

    def run(self) -> None:
        """Called in a thread of the pool. A task that was abandoned before does not start."""
        with self._lock:
            if self.abandoned:
                return
            self._thread = threading.get_ident()
        try:
            self._context.run(self._work)
        finally:
            with self._lock:
                self._thread = None
                self._has_ended = True

    def interrupt(self) -> None:
        """Raise `Interrupted` in the thread, as soon as it is where this does no harm to others."""
        with self._lock:
            if self._has_ended or self.abandoned:
                return
            self.abandoned = True
        self._abandon()
        if not self._is_interrupted(0):
            threading.Thread(
                target=self._interrupt_later, name="onefold-interrupt", daemon=True
            ).start()

    def _interrupt_later(self) -> None:
        pause = FIRST_PAUSE
        while not self._is_interrupted(pause):
            pause = min(pause * 2, LONGEST_PAUSE)

    def _is_interrupted(self, pause: float) -> bool:
        """Interrupt the task after a pause, or find that it does not run; False if not now."""
        # Even without a pause, this thread now has the interpreter lock for a whole interval, also
        # on a busy machine. So the other one does not run on between the look at its stack and the
        # exception.
        time.sleep(pause)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(LONG_INTERVAL)
        try:
            return self._is_interrupted_now()
        finally:
            sys.setswitchinterval(interval)

    def _is_interrupted_now(self) -> bool:
        with self._lock:
            if self._thread is None:
                return True
            frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
            if not _is_interruptible(frames[self._thread]):
                return False
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(Interrupted)
            )
            return True


FIRST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.05
"""Seconds between two looks at a thread that cannot be interrupted now."""
LONG_INTERVAL: Final = 0.1
"""Seconds for which a thread has the interpreter lock while it interrupts another one."""
LOCKING: Final = ("importlib._bootstrap", "logging.", "onefold.databases.")
"""Modules that hold locks and connections of the whole process while they call others."""
CONDITION: Final = (
    "__enter__", "__exit__", "acquire", "release", "_acquire_restore", "_release_save",
)  # fmt: skip
"""Functions of `threading` that take or release the lock of a condition or a semaphore."""


def _is_interruptible(frame: FrameType) -> bool:
    """Whether an exception at this place leaves no lock locked that other threads need.

    It may in Python code that takes or releases one: of a module, of a log handler, of a condition.
    Then others wait forever.
    """
    module, function = _place(frame)
    if module.startswith("onefold.") or (module == "threading." and function in CONDITION):
        return False
    place: FrameType | None = frame
    while place is not None:
        module, function = _place(place)
        if module.startswith(LOCKING):
            return False
        if (module, function) == ("threading.", "start") and place.f_locals["self"].ident is None:
            return False  # until it runs, a new thread has the id of this one: it would be hit
        place = place.f_back
    return True


def _place(frame: FrameType) -> tuple[str, str]:
    return f"{frame.f_globals.get('__name__')}.", frame.f_code.co_name


class Threads:
    """Starts threads on demand, up to a maximum."""

    def __init__(self, name: str, most: int) -> None:
        """Starts no thread."""
        self._name = name
        self._most = most
        self._queue: SimpleQueue[ThreadTask | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0

    def submit(self, work: Callable[[], None], context: Context | None = None) -> ThreadTask:
        """Queue a call for the next free thread."""
        task = ThreadTask(work, copy_context() if context is None else context, self._abandon)
        with self._lock:
            starts = self._idle <= self._queue.qsize() and self._started < self._most
            if starts:
                self._started += 1
        self._queue.put(task)
        if starts:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return task

    def _abandon(self) -> None:
        """Allow one more thread in place of one whose handler was abandoned."""
        with self._lock:
            self._started -= 1

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            started, self._most = self._started, 0
        for _ in range(started):
            self._queue.put(None)

    def _work(self) -> None:
        # An interrupt may arrive late, anywhere: then the thread has been replaced already.
        with suppress(Interrupted):
            self._run_tasks()

    def _run_tasks(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            task = self._queue.get()
            with self._lock:
                self._idle -= 1
            if task is None:
                return
            with suppress(Interrupted):
                task.run()
            if task.abandoned:
                return  # it has been replaced
