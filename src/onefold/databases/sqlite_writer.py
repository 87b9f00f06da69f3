"""The writer: the one thread of a process that writes to a SQLite file.

1. Whatever is asked for while it is at work is done next, in one transaction and one commit, each
   in a savepoint of its own: one caller's error takes nothing of the others' with it. Single items
   that can be run together are one operation there.
2. It asks for the lock itself, with `begin immediate`, every millisecond until its callers'
   deadlines: SQLite's own busy handler sleeps up to 100 ms, and whoever has the lock would keep it.
3. After a while of commits back to back, it lets other processes in.
4. It ends when it has had nothing to do for a while, and starts again when there is something.
5. A thread that is alone with its errand stands in for it: two hops would cost as much as the
   commit. Whoever comes meanwhile queues up for the writer, and so does the thread itself where it
   would have to wait for the lock.
6. A fork waits until nothing is being written: SQLite's list of locks would be copied with the
   rest of the process, and the child would find the file locked for ever.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import suppress
from copy import copy
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from onefold.databases import raise_translated
from onefold.databases.gathering import flight, just, together
from onefold.databases.sqlite import execute as sqlite_errors
from onefold.databases.sqlite.execute import execute
from onefold.databases.sqlite_errands import Errand, deliver
from onefold.errors import Closed, DatabaseBusy, OnefoldError, WouldDeadlock
from onefold.operations.statement import run

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from contextlib import AbstractContextManager

    from onefold.databases import Clock
    from onefold.databases.gathering import Shared, Waiting
    from onefold.operations.statement import Rows, Sql, Statement

POLL: Final = 0.001
MONOPOLY: Final = 0.020
"""After so long of commits back to back, the writer leaves the lock alone for one poll."""
SHORT_POLLS: Final = 20
IDLE: Final = 1.0
LARGEST_COMMIT: Final = 500


class Undone(BaseException):
    """The whole transaction is gone: a full disk, say, takes more with it than a statement."""


class File(Protocol):
    """What the writer needs to know of its database."""

    sql: Sql
    clock: Clock

    def connect(self) -> sqlite3.Connection:
        """A connection in autocommit mode, which does not wait for locks by itself."""
        ...

    def busy(self) -> DatabaseBusy:
        """The error for a lock that was not given up in time."""
        ...

    def translated(self, error: sqlite3.Error) -> Exception:
        """SQLite's error as ours."""
        ...

    def refuse_own_lock(self, thread: int) -> None:
        """Raise where a thread would wait for its own open transaction."""
        ...


class Writer:
    """One file's writer in one process."""

    def __init__(self, file: File) -> None:
        """No thread is started yet."""
        self._file = file
        # Reentrant, here and below: a signal handler may call us in the middle of a call.
        self._lock = threading.RLock()
        self._queue: SimpleQueue[Errand | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._turns = Turns()
        self._closed = False
        self._busy = False
        """True from the first errand of a queue until nothing is left of it."""
        self._stand_in: int | None = None
        """The thread that writes in the writer's stead."""
        self.in_transaction: AbstractContextManager[Any] = threading.RLock()
        _forks.writers.add(self)

    def stand_in(self, shared: Shared[Any, Any]) -> list[Any] | None:
        """Do a thread's own errand where nobody else has one; None where it must queue up."""
        me = threading.get_ident()
        if self._stand_in == me:
            # A signal handler, in the middle of what this very thread is writing.
            raise WouldDeadlock
        try:
            with self._lock:
                if self._closed:
                    raise Closed
                if self._busy or self._stand_in is not None:
                    return None
                self._stand_in = me
            return self._write_alone(shared)
        finally:
            # Nothing is called before this, so no signal can come before it.
            if self._stand_in == me:
                self._stand_in = None
                if self._closed:
                    self.close()

    def _write_alone(self, shared: Shared[Any, Any]) -> list[Any] | None:
        self._turns.wait()
        with self.in_transaction:
            if not self._begins():
                return None
            try:
                answers = run(just(shared)(self._file.sql), self._execute)
                self._connected().execute("commit")
            except sqlite3.Error as error:
                raise_translated(self._file.translated(error), error)
            finally:
                self._undo()
        self._turns.committed()
        return answers

    def submit(self, errand: Errand) -> None:
        """Hand an errand to the writer."""
        with self._lock:
            if self._closed:
                raise Closed
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="onefold-writer", daemon=True)
                thread.start()
                self._thread = thread
            self._busy = True
            self._queue.put(errand)

    def close(self) -> None:
        """Finish what was asked for, and end."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if self._stand_in == threading.get_ident():
            return  # called by a signal handler: it is closed when this thread has written
        if thread is not None:
            self._queue.put(None)
            thread.join()
        while self._stand_in is not None:
            time.sleep(POLL)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _work(self) -> None:
        while errands := self._next():
            try:
                self._write(errands)
            except BaseException as error:  # noqa: BLE001 - a thread that dies leaves all waiting
                for errand in errands:
                    errand.fail(error)
                deliver(errands)

    def _next(self) -> list[Errand]:
        """What is to be done, once there is something; nothing where it is time to end."""
        while True:
            with self._lock:
                self._busy = not self._queue.empty()
            with suppress(Empty):
                first = self._queue.get(timeout=0 if self._closed else IDLE)
                if first is not None:
                    return [first, *self._waiting()]
            with self._lock:
                if self._queue.empty():
                    self._thread = None
                    return []

    def _waiting(self) -> list[Errand]:
        """Whoever else is there now."""
        found: list[Errand] = []
        with suppress(Empty):
            while len(found) < LARGEST_COMMIT:
                if (errand := self._queue.get_nowait()) is not None:
                    found.append(errand)
        return found

    def _write(self, errands: list[Errand]) -> None:
        """Do all errands in one transaction; where that is undone, each in its own."""
        try:
            self._turns.wait()
            errands[:] = [errand for errand in errands if not errand.is_abandoned]
            self._wait_for_the_stand_in(errands)
            while errands and not self._has_run(errands):
                self._wait_for_the_lock(errands)
        except BaseException as error:  # noqa: BLE001 - the callers', and not the end of the thread
            if len(errands) > 1 and isinstance(error, sqlite3.Error | Undone):
                for errand in errands:
                    errand.answered, errand.error = False, None
                    self._write([errand])
                return
            for errand in errands:
                errand.fail(self._own(error))
        deliver(errands)

    def _own(self, error: BaseException) -> BaseException:
        """The error for one of several callers."""
        cause = error.__cause__ if isinstance(error, Undone) else error
        if isinstance(cause, sqlite3.Error):
            cause = self._file.translated(cause)
        return copy(cause) if isinstance(cause, OnefoldError) else cause or error

    def _has_run(self, errands: list[Errand]) -> bool:
        """Do all errands in one transaction; False where somebody else has the lock."""
        with self.in_transaction:
            if not self._begins():
                return False
            try:
                self._run_all(errands)
            finally:
                self._undo()
        return True

    def _begins(self) -> bool:
        """Ask for the lock; False where somebody else has it."""
        # A thread that stood in may have been interrupted before it could undo what it began.
        self._undo()
        try:
            self._connected().execute("begin immediate")
        except sqlite3.Error as error:
            if sqlite_errors.is_busy(error):
                return False
            raise_translated(self._file.translated(error), error)
        return True

    def _wait_for_the_stand_in(self, errands: list[Errand]) -> None:
        """Nobody else will stand in while there are errands; who does is about to be done."""
        for _ in range(SHORT_POLLS):
            if self._stand_in is None:
                return
            time.sleep(POLL / SHORT_POLLS)
        while errands and self._stand_in is not None:
            self._wait_for_the_lock(errands)

    def _wait_for_the_lock(self, errands: list[Errand]) -> None:
        """A moment; then `errands` has those who still wait, and those who came meanwhile."""
        gone = [errand for errand in errands if self._gives_up(errand)]
        errands[:] = [errand for errand in errands if not errand.answered]
        deliver(gone)
        time.sleep(POLL)
        errands += self._waiting()
        errands[:] = [errand for errand in errands if not errand.is_abandoned]

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._file.connect()
        return self._connection

    def _gives_up(self, errand: Errand) -> bool:
        """Whether an errand has waited long enough, or would wait for itself."""
        try:
            if not errand.looked:
                errand.looked = True
                self._file.refuse_own_lock(errand.thread)
            if time.monotonic() >= errand.deadline:
                raise self._file.busy()  # noqa: TRY301 - told below, as the other one is
        except Exception as error:  # noqa: BLE001 - the caller's
            errand.fail(error)
        return errand.answered

    def _run_all(self, errands: list[Errand]) -> None:
        nested = len(errands) > 1
        flights: dict[Hashable, list[Errand]] = {}
        for errand in errands:
            flights.setdefault(errand.shared.group, []).append(errand)
        for flying in flights.values():
            run(flight(flying), lambda some: self._attempt(some, nested=nested))
        if not nested and errands[0].error is not None:
            return
        self._connected().execute("commit")
        self._turns.committed()

    def _attempt(self, some: Sequence[Waiting], *, nested: bool) -> list[Any]:
        """Run a flight, or one errand of it, so that it can be undone without the others."""
        connection, first = self._connected(), some[0]
        assert isinstance(first, Errand)
        try:
            if nested:
                connection.execute("savepoint errand")
            answers = first.context.run(run, together(some)(self._file.sql), self._execute)
            if nested:
                connection.execute("release errand")
        except BaseException as error:
            if not connection.in_transaction:
                raise Undone from error
            if nested:
                connection.execute("rollback to errand")
                connection.execute("release errand")
            if isinstance(error, sqlite3.Error):
                raise_translated(self._file.translated(error), error)
            raise
        return answers

    def _execute(self, statement: Statement) -> Rows:
        return execute(self._connected(), statement, self._file.clock)

    def _undo(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("rollback")


class _Forks:
    """Keeps forks and transactions apart."""

    def __init__(self) -> None:
        self.writers: WeakSet[Writer] = WeakSet()
        self._one_by_one = threading.RLock()
        self._paused: list[Writer] = []

    def pause(self) -> None:
        """Wait for the transactions that are open, and let none begin."""
        self._one_by_one.acquire()
        self._paused = list(self.writers)
        for writer in self._paused:
            writer.in_transaction.__enter__()

    def go_on(self) -> None:
        """In the parent and in the child, after the fork."""
        while self._paused:
            self._paused.pop().in_transaction.__exit__(None, None, None)
        self._one_by_one.release()


_forks: Final = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.pause, after_in_parent=_forks.go_on, after_in_child=_forks.go_on
    )


class Turns:
    """Lets other processes have the lock once in a while."""

    def __init__(self) -> None:
        """Nothing was committed yet."""
        self._busy_since = 0.0
        self._last_commit = 0.0

    def committed(self) -> None:
        """The lock was ours until now."""
        now = time.monotonic()
        if now - self._last_commit > POLL:
            self._busy_since = now
        self._last_commit = now

    def wait(self) -> None:
        """Leave the lock alone for a moment, where others may have been waiting for long."""
        now = time.monotonic()
        if now - self._last_commit <= POLL and now - self._busy_since >= MONOPOLY:
            self._busy_since = now
            time.sleep(POLL)
