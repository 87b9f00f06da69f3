"""Threads for handlers that are not coroutines.

Daemons, and our own: a handler that hangs must not keep the process from ending. A thread whose
handler was given up is left to itself, and another takes its place.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Interrupted(BaseException):
    """Raised inside a handler that is to stop; not an Exception, so that few catch it."""


class ThreadTask:
    """A call for a thread, in a context of its own."""

    def __init__(self, work: Callable[[], None], context: Context) -> None:
        """Not begun."""
        self._work = work
        self._context = context
        self._thread: int | None = None
        self._lock = threading.Lock()
        self.given_up: bool = False

    def run(self) -> None:
        """In a thread of the crew; one that was given up before it began is not begun."""
        with self._lock:
            if self.given_up:
                return
            self._thread = threading.get_ident()
        try:
            self._context.run(self._work)
        finally:
            with self._lock:
                self._thread = None

    def interrupt(self) -> None:
        """Raise `Interrupted` at the thread's next step in Python; a call into C goes on."""
        with self._lock:
            self.given_up = True
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(Interrupted)
                )


class Threads:
    """As many as there is work for, up to a number."""

    def __init__(self, name: str, most: int) -> None:
        """No thread is started yet."""
        self._name = name
        self._most = most
        self._queue: SimpleQueue[ThreadTask | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0

    def submit(self, work: Callable[[], None], context: Context | None = None) -> ThreadTask:
        """Have a thread do it, sooner or later."""
        errand = ThreadTask(work, copy_context() if context is None else context)
        with self._lock:
            starts = self._idle <= self._queue.qsize() and self._started < self._most
            if starts:
                self._started += 1
        self._queue.put(errand)
        if starts:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return errand

    def abandon(self) -> None:
        """One thread has been given up: another may take its place."""
        with self._lock:
            self._started -= 1

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            started, self._most = self._started, 0
        for _ in range(started):
            self._queue.put(None)

    def _work(self) -> None:
        # An interruption may come late, anywhere: the thread's place has been given away then.
        with suppress(Interrupted):
            self._run_errands()

    def _run_errands(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            errand = self._queue.get()
            with self._lock:
                self._idle -= 1
            if errand is None:
                return
            with suppress(Interrupted):
                errand.run()
            if errand.given_up:
                return  # its place was given to another
