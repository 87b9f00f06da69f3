"""SQLite: one file, WAL, one writer at a time.

Writes go to the writer thread of the process. Reads run in the caller's thread, or, for an event
loop, in one of a few threads, until the deadline of its caller. A read by keys runs in the event
loop itself, on a connection that is kept for such reads: it never waits for searches.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, TypeVar
from urllib.parse import unquote
from weakref import WeakKeyDictionary, WeakSet, ref

from onefold.databases import raise_translated
from onefold.databases.batching import Groups, HeldKeys
from onefold.databases.deadline import reading_until, seconds_until
from onefold.databases.reach import Reach, database_wait
from onefold.databases.sqlite.execute import apply_pending, execute, is_busy, read, translated
from onefold.databases.sqlite.forks import POLL, forks
from onefold.databases.sqlite.handler_transaction import (
    AsyncSqlite,
    Shelf,
    aopen_transaction,
    called_in,
    open_transaction,
    put_away,
)
from onefold.databases.sqlite.notify import SqliteNotifier
from onefold.databases.sqlite.writer import SqliteWriter, WriterGroup, single
from onefold.errors import Closed, DatabaseBusy, DatabaseUnavailable, InvalidInput, WouldDeadlock
from onefold.model.diagnosis import Surroundings
from onefold.operations.migrations import latest
from onefold.operations.statement import Sql, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import Self

    from onefold.databases import Build, Clock
    from onefold.databases.batching import Item
    from onefold.operations.migrations import Identity, Migration


T = TypeVar("T")

THREADS: Final = 8
STEPS: Final = 10_000
"""Steps of SQLite's virtual machine, about a millisecond, between two looks at the clock."""
OLDEST: Final = (3, 35, 0)
"""The first version with RETURNING."""

_inherited_by_fork: list[object] = []
"""Connections that were in use at the fork. SQLite forbids to close them in a forked child."""


class _Token:
    """Lives as long as the connection that has it as a function.

    sqlite3 connections have no weak references, and after a while an id may belong to another
    connection.
    """

    def __call__(self) -> None:
        """Never called."""


class _Lent(NamedTuple):
    """A connection that was given to `within`."""

    token: ref[_Token]
    thread: int
    path: Path


_lent: dict[int, _Lent] = {}
"""By the connection's id."""


class OwnConnection(sqlite3.Connection):
    """A connection that Onefold has opened: the check of a handler tells it from others."""

    def __del__(self) -> None:
        """Close it with the Onefold that is dropped: since Python 3.13, sqlite3 would warn."""
        with suppress(sqlite3.Error):
            self.close()


class SqliteDatabase:
    """One SQLite file. Safe in threads, in event loops, and after a fork (see `forks`)."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        busy_timeout: timedelta,
        database_wait: timedelta,
        shards: int | None = None,
    ) -> None:
        """`url` is sqlite:///relative or sqlite:////absolute; nothing is opened yet."""
        self.url = url
        self.path: Path = path_of(url)
        self.label: str = f"sqlite:///{self.path}"
        self.sql: Sql = Sql("sqlite")
        self.clock = clock
        # A job that was confirmed must survive a power cut, not only a crash.
        self.synchronous: str = "full"
        self._shards = shards
        self.busy_timeout: float = busy_timeout.total_seconds()
        self.database_wait: float = database_wait.total_seconds()
        self._state = _State(self)
        self._closed = False

    @property
    def database(self) -> Self:
        """Itself: see `Store`."""
        return self

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation in a transaction."""
        return self.batch(single(build)) if write else self._read(build, reading_until())

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """Run the whole operation in one thread call: a call per statement costs twice as much."""
        if write:
            await self.aidentity()
            return await self._current().writer.arun(single(build))
        until = reading_until()
        return await self._hop(lambda: self._read(build, until))

    async def alook(self, build: Build[T]) -> T:
        """Read by keys in the event loop: a thread takes longer than the read itself.

        It does not wait: in WAL mode a reader needs no lock that a writer has, and there is no
        busy timeout.
        """
        state = self._current()
        if state.identity is not None and not forks.is_under_way:
            with forks:
                connection = state.key_readers.take()
                if connection is not None:
                    with suppress(sqlite3.Error):  # Opened or closed now: a thread can wait.
                        try:
                            return self._operate(connection, build)
                        finally:
                            put_away(state.key_readers, connection)
        return await called_in(state.key_executor, lambda: self._read(build, by_key=True))

    def _operate(self, connection: sqlite3.Connection, build: Build[T]) -> T:
        return run(build(self.sql), lambda one: execute(connection, one, self.clock))

    def batch(self, item: Item[Any, T]) -> T:
        """Write one item, in one commit with the items of other callers."""
        self.identity()
        return self._current().writer.run(item)

    async def abatch(self, item: Item[Any, T]) -> T:
        """Write one item, together with those of other tasks of this event loop.

        They are one call of the writer: a call of each would wake its thread, and then the loop.
        While the file is locked, each is a call of its own, which waits until its own deadline.
        """
        state, loop = self._current(), asyncio.get_running_loop()
        if state.writer.waits:
            return await state.writer.arun(item)
        groups = state.task_groups.get(loop)
        if groups is None:
            held = HeldKeys(self.busy_timeout, self.busy)
            groups = state.task_groups[loop] = Groups(partial(WriterGroup, self._write), held)
        return await groups[item.group, database_wait.get()].run(item)

    async def _write(self, build: Build[T], *, patient: bool, deadline: float | None = None) -> T:
        """The writer waits for all callers; no key is held apart from the file's lock."""
        del patient, deadline
        return await self.atransact(build)

    async def _hop(self, work: Callable[[], T]) -> T:
        return await called_in(self._current().executor, work)

    def _read(self, build: Build[T], until: float | None = None, *, by_key: bool = False) -> T:
        """While the file is opened or closed, even readers must wait."""
        self.identity()
        return self.until_free(lambda: self._read_once(build, until, by_key=by_key))

    def _read_once(self, build: Build[T], until: float | None, *, by_key: bool) -> T:
        state = self._current()
        readers = state.key_readers if by_key else state.readers
        if until is not None:
            seconds_until(until)  # it may be over before there is a thread
        with forks:
            connection = readers.take() or self.connect()
            try:
                if until is not None:
                    connection.set_progress_handler(lambda: time.monotonic() >= until, STEPS)
                connection.execute("begin")  # so that all reads see the same state of the file
                return self._operate(connection, build)
            finally:
                connection.set_progress_handler(None, 0)
                with suppress(sqlite3.Error):
                    connection.execute("rollback")
                put_away(readers, connection)

    @property
    def patience(self) -> float:
        """Seconds for which the present call waits for a locked file."""
        wait = database_wait.get()
        if wait is None:
            return self.busy_timeout
        return POLL if self._state.reach.is_hopeless else min(wait, self.busy_timeout)

    def until_free(self, work: Callable[[], T]) -> T:
        """Call a function again and again while the file is locked, until the deadline."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise_translated(self.translated(error), error)
                if time.monotonic() >= deadline:
                    raise self.given_up() from error
            time.sleep(POLL)

    def connect(self) -> sqlite3.Connection:
        """A connection in autocommit mode, without a busy timeout."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise DatabaseUnavailable(
                self.label,
                f"SQLite {sqlite3.sqlite_version} is too old; 3.35 or later is needed.",
            )
        forks.refuse_inherited(self.path)
        return self.until_free(self._connect)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self.patience,
            isolation_level=None,
            check_same_thread=False,
            factory=OwnConnection,
        )
        try:
            connection.execute("pragma journal_mode = wal").fetchone()
            connection.execute(f"pragma synchronous = {self.synchronous}")
            # From here on the caller waits for locks.
            connection.execute("pragma busy_timeout = 0")
        except BaseException:
            connection.close()
            raise
        return connection

    def _current(self) -> _State:
        """This process' connections; a forked child starts without its parent's."""
        if self._closed:
            raise Closed
        if self._state.pid != os.getpid():
            _inherited_by_fork.append(self._state)
            if self._state.identity is not None:
                forks.inherit(self.path)
            self._state = _State(self)
        return self._state

    def busy(self) -> DatabaseBusy:
        """The error for a lock that was not released in time."""
        return DatabaseBusy(
            f"another connection holds the write lock of {self.path}. Commit or roll it back; if it"
            " is your own transaction in this thread, use within(connection).",
            waited=timedelta(seconds=self.patience),
        )

    def given_up(self) -> DatabaseBusy:
        """The error of a call that has tried until its deadline."""
        error = self.busy()
        if database_wait.get() is not None:
            self._state.reach.gave_up(error)
        return error

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction with the write lock."""
        connection.execute("begin immediate")
        self._state.reach.succeeded()

    def refuse_own_lock(self, thread: int) -> None:
        """Look for an open transaction that was borrowed in the same thread.

        A reference to the connection would keep its locks. So only its id is remembered, and
        looked up among the living connections before a wait.
        """
        lent = {
            number
            for number, lent in list(_lent.items())
            if lent.thread == thread and lent.path == self.path and lent.token() is not None
        }
        if lent and any(id(thing) in lent and _in_transaction(thing) for thing in gc.get_objects()):
            raise WouldDeadlock

    def translated(self, error: sqlite3.Error) -> Exception:
        """SQLite's error as ours. An interrupted write of the parent fails in a forked child."""
        forks.refuse_inherited(self.path)
        return translated(error, self.label, self.busy)

    def identity(self) -> Identity:
        """An embedded file migrates itself at the first use."""
        state = self._current()
        if state.identity is None:
            with state.opening:
                if state.identity is None:
                    self._migrate(state)
        assert state.identity is not None
        return state.identity

    def is_absent(self) -> bool:
        """Whether there is no file, or one without tables of ours. Nothing is created or changed.

        A file that cannot be read is not absent: its first use raises the error.
        """
        if not self.path.exists():
            return True
        address = f"{self.path.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                return not execute(connection, self.sql("has_identity"), lambda: 0)
        except sqlite3.Error:
            return False

    def exchanges(self) -> None:
        """None: the writer thread is the fastest way."""

    async def anotifier(self) -> SqliteNotifier:
        """Notifies a worker after a commit."""
        await self.aidentity()
        notifier = SqliteNotifier(self.connect)
        self._current().notifiers.add(notifier)
        return notifier

    async def aidentity(self) -> Identity:
        """`identity`, awaited."""
        known = self._current().identity
        return await self._hop(self.identity) if known is None else known

    def migrate(self, *, fresh: bool = False) -> list[Migration]:
        """Apply pending migrations."""
        state = self._current()
        with state.opening:
            return self._migrate(state, fresh=fresh)

    async def amigrate(self) -> list[Migration]:
        """`migrate`, awaited."""
        return await self._hop(self.migrate)

    def _migrate(self, state: _State, *, fresh: bool = False) -> list[Migration]:
        with forks:
            connection = state.readers.take() or self.connect()
            try:
                # Before the first read: while the file is opened or closed, even readers must wait.
                connection.execute(f"pragma busy_timeout = {int(self.patience * 1000)}")
                applied: list[Migration] = []
                identity = None if fresh else read(connection, self.sql, self.label)
                if not _is_current(identity):
                    connection.execute("begin immediate")
                    applied, identity = self._apply_pending(connection, fresh=fresh)
                    connection.execute("commit")
                connection.execute("pragma busy_timeout = 0")
            except sqlite3.DatabaseError as error:
                raise_translated(self.translated(error), error)
            finally:
                put_away(state.readers, connection)  # closed, and so rolled back, after an error
        self._adopt(identity)
        state.identity = identity
        return applied

    def _apply_pending(
        self, connection: sqlite3.Connection, *, fresh: bool = False
    ) -> tuple[list[Migration], Identity]:
        return apply_pending(
            connection, self.sql, shards=self._shards, where=self.label, fresh=fresh
        )

    def _adopt(self, identity: Identity) -> None:
        """Use the file's number of shards: it decides where keys are stored."""
        identity.refuse_other_shards(self._shards, self.label)
        self.sql = Sql("sqlite", shards=identity.shards)

    def check_borrowed(self, connection: sqlite3.Connection) -> str | None:
        """Why a caller's connection cannot be used; None if it can."""
        cursor = connection.cursor()
        cursor.row_factory = None
        row = cursor.execute("pragma database_list").fetchone()
        path = row[2] if isinstance(row[2], str) else row[2].decode()
        if not path or not self.path.exists() or not Path(path).samefile(self.path):
            return f"is connected to {path or 'a database in memory'}, not to {self.path}"
        return None

    def prepare_borrowed(self, connection: sqlite3.Connection) -> None:
        """Create the tables, on the caller's connection if it may have locked the file.

        Such tables are part of the caller's transaction, and disappear with its rollback. So the
        identity is not remembered.
        """
        if self._current().identity is not None:
            return
        if not connection.in_transaction:
            self.identity()
            return
        identity = read(connection, self.sql, self.label)
        if not _is_current(identity):
            _, identity = self._apply_pending(connection)
        self._adopt(identity)

    def remember_borrowed(self, connection: sqlite3.Connection) -> None:
        """So that a plain call in the same thread raises instead of waiting for itself."""
        known = _lent.get(id(connection))
        token = None if known is None else known.token()
        if token is None:
            for number, lent in list(_lent.items()):
                if lent.token() is None:
                    _lent.pop(number, None)
            token = _Token()
            connection.create_function("onefold_lent", 0, token)
        _lent[id(connection)] = _Lent(ref(token), threading.get_ident(), self.path)

    def handler_transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection of ours with the write lock, in a transaction for a handler."""
        return open_transaction(self, self._current().shelf)

    def ahandler_transaction(
        self, first: Build[Any] | None = None
    ) -> AbstractAsyncContextManager[AsyncSqlite]:
        """`handler_transaction`, awaited; runs `first` together with the begin."""
        return aopen_transaction(self, self._current().async_shelf, first)

    def surroundings(self) -> Surroundings:
        """The free space of the disk, and the size of the write-ahead log."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return Surroundings(
            free_bytes=shutil.disk_usage(self.path.parent).free,
            log_bytes=log.stat().st_size if log.exists() else 0,
        )

    def close(self) -> None:
        """Close this process' connections and threads."""
        if not self._closed:
            state = self._current()
            self._closed = True
            state.close()

    async def aclose(self) -> None:
        """`close`, awaited: the writer may have to finish a transaction."""
        await asyncio.to_thread(self.close)


def _in_transaction(thing: object) -> bool:
    try:
        return isinstance(thing, sqlite3.Connection) and thing.in_transaction
    except sqlite3.ProgrammingError:  # closed
        return False


def _is_current(identity: Identity | None) -> TypeGuard[Identity]:
    return identity is not None and identity.version >= latest("sqlite")


class _State:
    """What belongs to one process."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.pid = os.getpid()
        self.opening = threading.RLock()
        self.identity: Identity | None = None
        self.reach = Reach(database.label)
        self.readers: Shelf[sqlite3.Connection] = Shelf()
        self.key_readers: Shelf[sqlite3.Connection] = Shelf()
        """For reads by keys in event loops."""
        self.shelf: Shelf[sqlite3.Connection] = Shelf()
        """Connections of handlers' transactions that have ended."""
        self.async_shelf: Shelf[AsyncSqlite] = Shelf()
        """The same for event loops: connections with their threads."""
        self.executor = ThreadPoolExecutor(THREADS, "onefold-sqlite")
        self.key_executor = ThreadPoolExecutor(1, "onefold-sqlite-key")
        self.writer = SqliteWriter(database)
        self.notifiers: WeakSet[SqliteNotifier] = WeakSet()
        self.task_groups: WeakKeyDictionary[asyncio.AbstractEventLoop, Groups[WriterGroup]] = (
            WeakKeyDictionary()
        )
        forks.add(self)

    def paused(self, seconds: float) -> Callable[[], None] | None:
        """See `Forked`."""
        return self.writer.paused(seconds)

    def close_idle(self) -> None:
        """See `Forked`."""
        for notifier in list(self.notifiers):
            notifier.close_idle()
        for shelf in (self.readers, self.key_readers, self.shelf, self.async_shelf):
            shelf.clear()

    def disown(self) -> None:
        """See `Forked`."""
        self.writer.disown()

    def close(self) -> None:
        self.writer.close()
        self.executor.shutdown(wait=False)
        self.key_executor.shutdown(wait=False)
        with forks:
            for shelf in (self.readers, self.key_readers, self.shelf, self.async_shelf):
                shelf.close()


def path_of(url: str) -> Path:
    """The file of a URL."""
    if not url.startswith("sqlite:///") or (name := unquote(url[len("sqlite:///") :])) in {
        "",
        ":memory:",
    }:
        raise InvalidInput(
            "url",
            f"must name a file, as in sqlite:///app.db or sqlite:////var/app.db, got {url!r}:"
            " a database in memory forgets every promise when the process ends",
        )
    # Absolute now: a process that changes its folder must not change its database.
    return Path(name).absolute()
