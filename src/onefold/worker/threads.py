"""A pool of threads for handlers that are plain functions.

Daemon threads: a handler that hangs must not keep the process from ending. A thread whose handler
was abandoned is replaced by another one.
"""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Interrupted(BaseException):
    """Raised inside a handler to stop it. Not an Exception, so that few handlers catch it."""


class ThreadTask:
    """A call for a thread, with its own context."""

    def __init__(self, work: Callable[[], None], context: Context) -> None:
        """Does not start it."""
        self._work = work
        self._context = context
        self._thread: int | None = None
        self._lock = threading.Lock()
        self.abandoned: bool = False

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

    def interrupt(self) -> None:
        """Raise `Interrupted` at the next Python instruction; a call into C continues."""
        with self._lock:
            self.abandoned = True
            if self._thread is not None:
                _wait_for_starting_threads()
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(Interrupted)
                )


def _wait_for_starting_threads() -> None:
    """Until it runs, a new thread has the id of the thread that starts it.

    It would receive the exception instead, and the thread that starts it would wait forever.
    """
    for _ in range(100):
        if all(thread.ident is not None for thread in threading.enumerate()):
            return
        time.sleep(0.001)


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
        task = ThreadTask(work, copy_context() if context is None else context)
        with self._lock:
            starts = self._idle <= self._queue.qsize() and self._started < self._most
            if starts:
                self._started += 1
        self._queue.put(task)
        if starts:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return task

    def abandon(self) -> None:
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
