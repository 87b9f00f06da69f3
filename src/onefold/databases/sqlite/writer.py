"""The writer: all writes of a process to a SQLite file, one transaction at a time.

1. A call that finds no other runs in its own thread: two switches of threads would cost as much as
   the commit. The others are queued, and the writer thread commits them together.
2. Each group of a batch has a savepoint of its own, so the error of one caller undoes nothing of
   the others.
3. The writer asks for the file's lock every millisecond, until the deadlines of its callers:
   SQLite's own busy handler sleeps up to 100 ms, and the present holder would keep the lock.
4. After some time of commits back to back, the writer lets other processes have the lock.
5. A fork waits for the end of the transaction under way, and closes the connection: see `forks`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress
from copy import copy
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from onefold.databases import raise_translated
from onefold.databases.batching import (
    Item,
    TaskCall,
    TaskEntry,
    TaskGroup,
    ThreadQueue,
    concerns_all,
    fail_all,
    run_entries,
    together,
)
from onefold.databases.sqlite.execute import execute, is_busy
from onefold.databases.sqlite.forks import POLL
from onefold.errors import Closed, OnefoldError, WouldDeadlock
from onefold.operations.statement import run

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from onefold.databases import Build
    from onefold.databases.batching import Entry
    from onefold.databases.sqlite.database import SqliteDatabase
    from onefold.operations.statement import Operation, Rows, Sql, Statement

T = TypeVar("T")

LONGEST_RUN: Final = 0.020
"""Seconds of commits back to back, after which the writer leaves the lock alone for one poll."""


class Undone(BaseException):
    """SQLite has rolled back the whole transaction, as it does when the disk is full."""


def single(build: Build[T]) -> Item[None, T]:
    """An operation as an item. It shares a commit with others, but no statement."""

    def many(sql: Sql, values: Sequence[None]) -> Operation[list[T]]:
        del values
        answer = yield from build(sql)
        return [answer]

    return Item(many, None, object(), None)


class SqliteWriter(ThreadQueue):
    """The writes of one process to one file."""

    largest: ClassVar[int] = 500
    at_once: ClassVar[int] = 1
    name: ClassVar[str] = "onefold-writer"

    def __init__(self, file: SqliteDatabase) -> None:
        super().__init__(lambda: file.patience)
        self._file = file
        self._connection: sqlite3.Connection | None = None
        self._fairness = LockFairness()
        self._closed = False
        self._closes_later = False
        self.waits: bool = False
        """True while a batch waits for the lock of another connection. New calls join it."""
        # Reentrant: a signal handler may fork in the middle of a write.
        self._in_transaction = RLock()

    def run(self, item: Item[Any, T]) -> T:
        """Write an item, and wait until it is committed."""
        if get_ident() in self._running:
            # A signal handler, in the middle of a write of this thread.
            raise WouldDeadlock
        try:
            return super().run(item)
        finally:
            if self._closes_later:
                self.close()

    async def arun(self, item: Item[Any, T]) -> T:
        """`run`, awaited. It never blocks the event loop."""
        entry = TaskEntry(item, time.monotonic() + self._timeout())
        try:
            self.put(entry)
        except BaseException:
            entry.future.cancel()  # queued perhaps, but no thread could start
            raise
        answer: T = await entry.future
        return answer

    def put(self, entry: Entry) -> None:
        """Queue a call."""
        with self._lock:
            if self._closed:
                raise Closed
            super().put(entry)

    def close(self) -> None:
        """Finish what is queued, and close the connection."""
        with self._lock:
            self._closed, self._idle = True, 0
            threads = list(self._threads)
        if get_ident() in self._running:
            self._closes_later = True  # a signal handler: its thread closes after its write
            return
        self._queue.put(None)
        for thread in threads:
            thread.join()
        with self._in_transaction:
            self._close_connection()

    def paused(self, seconds: float) -> Callable[[], None] | None:
        """See `Forked`. A signal handler may fork in the middle of a write of this thread."""
        if not self._in_transaction.acquire(timeout=seconds):
            return None
        if get_ident() not in self._running:
            self._close_connection()
        return self._in_transaction.release

    def disown(self) -> None:
        """See `Forked`. SQLite asks for each statement, those that are prepared included."""
        if self._connection is not None and get_ident() in self._running:
            self._connection.set_authorizer(_deny)

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run_inline(self, item: Item[Any, T]) -> list[T] | None:
        self._fairness.wait()
        with self._in_transaction:
            if self._closed:
                raise Closed
            if not self._begin():
                return None
            try:
                answer = run(item.alone(self._file.sql), self._execute)
                self._connected().execute("commit")
            except sqlite3.Error as error:
                raise_translated(self._file.translated(error), error)
            finally:
                self._undo()
        self._fairness.committed()
        return [answer]

    def _run_batch(self, entries: list[Entry]) -> None:
        """Write a batch in one transaction; if SQLite undoes that, each entry in its own."""
        try:
            self._fairness.wait()
            while entries and not self._write(entries):
                self.waits = True
                self._wait_for_lock(entries)
        except BaseException as error:  # noqa: BLE001 - the callers receive it
            if len(entries) > 1 and isinstance(error, sqlite3.Error | Undone):
                for entry in entries:
                    entry.is_answered = False
                    self._run_batch([entry])
                return
            for entry in entries:
                entry.set(None, self._own(error))
        finally:
            self.waits = False
        for entry in entries:
            entry.wake()

    def _own(self, error: BaseException) -> BaseException:
        """The error for one of several callers."""
        cause = error.__cause__ if isinstance(error, Undone) else error
        if isinstance(cause, sqlite3.Error):
            cause = self._file.translated(cause)
        return copy(cause) if isinstance(cause, OnefoldError) else cause or error

    def _write(self, entries: list[Entry]) -> bool:
        """Write a batch in one transaction; False if another connection has the lock."""
        with self._in_transaction:
            if not self._begin():
                return False
            try:
                self._run_all(entries)
            finally:
                self._undo()
        return True

    def _begin(self) -> bool:
        """Ask for the lock; False if another connection has it."""
        # A caller may have been interrupted before it rolled back its transaction.
        self._undo()
        try:
            self._file.begin(self._connected())
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            raise_translated(self._file.translated(error), error)
        return True

    def _wait_for_lock(self, entries: list[Entry]) -> None:
        """Wait for one poll. Callers that give up leave the batch, and new ones join it."""
        for entry in entries:
            if self._gives_up(entry):
                entry.wake()
        time.sleep(POLL)
        entries[:] = [
            entry
            for entry in (*entries, *self._queued())
            if not entry.is_answered and not entry.is_abandoned
        ]

    def _gives_up(self, entry: Entry) -> bool:
        """Whether a call has waited until its deadline, or would wait for its own thread."""
        try:
            if not entry.is_checked:
                entry.is_checked = True
                self._file.refuse_own_lock(entry.thread)
            if time.monotonic() >= entry.deadline:
                raise entry.context.run(self._file.given_up)  # noqa: TRY301 - stored below, as the other error
        except Exception as error:  # noqa: BLE001 - the caller's
            entry.set(None, error)
        return entry.is_answered

    def _run_all(self, entries: list[Entry]) -> None:
        nested = len(entries) > 1
        groups: dict[Hashable, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(entry.item.group, []).append(entry)
        for group in groups.values():
            run(run_entries(group, _stored), lambda some: self._attempt(some, nested=nested))
        if not nested and entries[0].error is not None:
            return
        self._connected().execute("commit")
        self._fairness.committed()

    def _attempt(self, some: Sequence[Entry], *, nested: bool) -> list[Any]:
        """Run entries so that they can be undone without the rest of the transaction."""
        connection, first = self._connected(), some[0]
        try:
            if nested:
                connection.execute("savepoint entry")
            answers = first.context.run(run, together(some)(self._file.sql), self._execute)
            if nested:
                connection.execute("release entry")
        except BaseException as error:
            if not connection.in_transaction:
                raise Undone from error
            if nested:
                connection.execute("rollback to entry")
                connection.execute("release entry")
            if isinstance(error, sqlite3.Error):
                raise_translated(self._file.translated(error), error)
            raise
        return answers

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._file.connect()
        return self._connection

    def _execute(self, statement: Statement) -> Rows:
        return execute(self._connected(), statement, self._file.clock)

    def _undo(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("rollback")


def _deny(*_: object) -> int:
    return sqlite3.SQLITE_DENY


def _stored(entry: Entry) -> None:
    """Its caller is woken after the commit."""


class WriterGroup(TaskGroup):
    """Calls for a writer that commits concurrent transactions together."""

    async def _run_calls(self, calls: Sequence[TaskCall]) -> None:
        """One by one, each call of a failed batch would wait for a commit of its own."""
        run_calls = super()._run_calls
        try:
            answers = await self._run_batch(calls)
        except Exception as error:  # noqa: BLE001 - which call it belongs to is found out below
            if len(calls) == 1 or concerns_all(error):
                fail_all(calls, error, TaskCall.wake)
            else:
                await asyncio.gather(*(run_calls([call]) for call in calls))
            return
        for call, answer in zip(calls, answers, strict=True):
            call.set(answer)
            call.wake()


class LockFairness:
    """Lets other processes have the lock once in a while."""

    def __init__(self) -> None:
        self._busy_since = 0.0
        self._last_commit = 0.0

    def committed(self) -> None:
        """This process had the lock until now."""
        now = time.monotonic()
        if now - self._last_commit > POLL:
            self._busy_since = now
        self._last_commit = now

    def wait(self) -> None:
        """Leave the lock alone for a moment if other processes may have waited long."""
        now = time.monotonic()
        if now - self._last_commit <= POLL and now - self._busy_since >= LONGEST_RUN:
            self._busy_since = now
            time.sleep(POLL)
