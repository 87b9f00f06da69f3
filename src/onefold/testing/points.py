"""The points at which a delivery can crash: SQL statements, commits, outgoing calls, effects.

While `traced` is active, the database drivers and HTTP clients that are imported report here what
a handler does. A point belongs to a line of the application: what Onefold and libraries do by
themselves has none, except that a commit of Onefold's for the application counts.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sqlite3
import sys
import sysconfig
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from linecache import getline
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakSet

import msgspec

import onefold
from onefold.operations.statement import run, run_async

if TYPE_CHECKING:
    from types import FrameType

    from onefold.databases import Database

Kind: TypeAlias = Literal["statement", "commit", "call", "effect"]
Patch: TypeAlias = Callable[[Any, str, Callable[[Any], Any]], None]
"""Replaces a method of a class by what a function makes of it."""

PAUSED: Final = 10.0
"""Seconds after which a paused delivery goes on, whatever the other one does."""

_OURS: Final = str(Path(onefold.__file__).parent)
_OURS_WITHIN: Final = {
    str(Path(onefold.__file__).parent / name)
    for name in (
        "databases/postgres/libpq.py",  # the connection of run.transaction()
        "testing/points.py",
        "testing/drivers.py",
        "testing/http_clients.py",
    )
}
"""Between the application and its libraries."""
_CHECK: Final = str(Path(__file__).with_name("idempotency.py"))
"""Calls the handler."""
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_ENDS: Final = re.compile(r"\s*(commit|end)\b", re.IGNORECASE)
_QUIET: Final = re.compile(
    r"\s*(begin|start|rollback|savepoint|release|pragma|set|show)\b", re.IGNORECASE
)


class Crash(BaseException):
    """The process ends here. Not an `Exception`: a handler must not catch it."""


class Line(msgspec.Struct, frozen=True):
    """A line of the application."""

    file: str
    number: int

    @property
    def text(self) -> str:
        """Its source."""
        return getline(self.file, self.number).strip()

    def __str__(self) -> str:
        """The place, as compilers write it."""
        return f"{self.file}:{self.number}"


class Point(msgspec.Struct, frozen=True):
    """A moment at which a process may die."""

    kind: Kind
    when: Literal["before", "after"]
    text: str
    line: Line

    def __str__(self) -> str:
        """One sentence part: before the commit, at this line."""
        shown = " ".join(self.text.split())
        short = shown if len(shown) <= 80 else shown[:77] + "..."  # noqa: PLR2004 - a line
        return f"{self.when} {short!r} at {self.line}"


class RecordedEffect(msgspec.Struct, frozen=True, order=True):
    """Something that left the process: a request, or an effect that a test declares."""

    name: str
    content: str
    key: str | None = None
    """Two effects with the same name and key count as one: the receiver recognizes the second."""


class Trace:
    """What one delivery does, and where it is to end or to wait."""

    def __init__(
        self,
        *,
        crash_at: int | None = None,
        lose: int | None = None,
        pause_at: int | None = None,
        is_unreported: bool = False,
    ) -> None:
        """`lose`: the number of the outgoing call whose answer is lost.

        `is_unreported`: the process dies after the handler has returned.
        """
        self.is_unreported: bool = is_unreported
        self.points: list[Point] = []
        self.effects: list[RecordedEffect] = []
        self.is_dead: bool = False
        self.reached: threading.Event = threading.Event()
        """Set when it pauses, and when it has ended."""
        self.go_on: threading.Event = threading.Event()
        self.calls: int = 0
        self.connections: dict[int, Any] = {}
        """The connections that it has used."""
        self.cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        """Its cursors of sqlite3. One that is not read to its end keeps a lock."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """Instead of the event loop of the check, which another delivery blocks."""
        self.blocks_loop: bool = False
        """True if it waits in an event loop without awaiting."""
        self.home: Line = Line("?", 0)
        """The handler, for what has no other line: tasks and threads begin in a library."""
        self._crash_at = crash_at
        self._lose = lose
        self._pause_at = pause_at

    def reach(self, kind: Kind, when: Literal["before", "after"], text: str, line: Line) -> bool:
        """Note a point; raises `Crash` there, or returns True if the delivery has to wait."""
        if self.is_dead:
            raise Crash
        number = len(self.points)
        self.points.append(Point(kind, when, text, line))
        if number == self._crash_at:
            self.is_dead = True
            close_cursors(self.cursors)
            raise Crash
        return number == self._pause_at

    def wait(self) -> None:
        """Wait until the other delivery has ended."""
        self.blocks_loop = _is_in_event_loop()
        self.reached.set()
        self.go_on.wait(PAUSED)

    async def await_other(self) -> None:
        """`wait`, awaited."""
        self.reached.set()
        await asyncio.to_thread(self.go_on.wait, PAUSED)

    def close(self) -> None:
        """End what the delivery has left open, as the end of its process does."""
        for connection in self.connections.values():
            with suppress(Exception):
                _end(connection, is_dead=self.is_dead)
        if (django := sys.modules.get("django.db")) is not None:
            # As after a request, and as in a new process after a crash.
            for wrapper in django.connections.all(initialized_only=True):
                if not wrapper.in_atomic_block:
                    wrapper.close() if self.is_dead else wrapper.close_if_unusable_or_obsolete()

    def loses_answer(self) -> bool:
        """Count an outgoing call; True if its answer is lost."""
        self.calls += 1
        return self.calls - 1 == self._lose


def close_cursors(cursors: Iterable[sqlite3.Cursor]) -> None:
    """End statements that are not read to their end: a closed connection keeps their locks."""
    for cursor in tuple(cursors):
        with suppress(sqlite3.Error):
            cursor.close()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _end(connection: Any, *, is_dead: bool) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.rollback()
    elif hasattr(connection, "pgconn"):  # psycopg
        if connection.pgconn.transaction_status or (is_dead and not hasattr(connection, "_pool")):
            connection.pgconn.finish()
    elif hasattr(connection, "terminate") and (is_dead or connection.is_in_transaction()):
        connection.terminate()  # asyncpg


seen: Final[set[int]] = set()
"""Connections that are reported by a library."""


current: ContextVar[Trace | None] = ContextVar("onefold_testing_trace", default=None)
inside: ContextVar[bool] = ContextVar("onefold_testing_inside", default=False)
"""True inside of a call that is reported: libraries call each other."""


def is_unreported() -> bool:
    """Whether no handler runs here, or a call of it that is reported."""
    return current.get() is None or inside.get()


def effect(name: str, content: object = None, *, key: str | None = None) -> None:
    """Declare an effect, in a test double: `effect("mail", address)`. Elsewhere it does nothing.

    `key` is what makes the receiver recognize a repetition: an idempotency key, a message id.
    """
    trace = current.get()
    if trace is None:
        return
    line = line_of_application() or trace.home
    text = f"effect {name!r}"
    trace.reach("effect", "before", text, line)
    trace.effects.append(RecordedEffect(name, repr(content), key))
    trace.reach("effect", "after", text, line)


def line_of_application(*, direct: bool = False) -> Line | None:
    """The line of the application that is running; None if Onefold does something by itself.

    `direct`: only if no code of Onefold is between that line and the library. A task or a thread
    that a library began for the handler has the line of the handler.
    """
    trace = current.get()
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        place = place_of(file)
        if place == "application":
            return Line(file, frame.f_lineno)
        if place == "check":
            break
        if place == "onefold" and direct:
            return None
        frame = frame.f_back
    return None if trace is None else trace.home


@lru_cache(maxsize=4096)
def place_of(file: str) -> Literal["application", "library", "onefold", "check"]:
    """Whose code a file is."""
    if file in _OURS_WITHIN:
        return "library"
    if file == _CHECK:
        return "check"
    if file.startswith(_OURS):
        return "onefold"
    return "library" if file.startswith(("<", *_LIBRARIES)) else "application"


def _is_ours(connection: Any) -> bool:
    """Whether Onefold has opened a connection, and ends its transactions by itself."""
    of_onefold = type(connection).__module__.startswith("onefold.databases")
    return bool(of_onefold or getattr(connection, "is_of_onefold", connection is None))


class Passage:
    """Something on its way out of the delivery, with a point before and after it."""

    def __init__(self, kind: Kind, text: str) -> None:
        self.trace: Trace | None = None if is_unreported() else current.get()
        self.kind: Kind = kind
        self.text: str = text
        self.line: Line | None = None
        """The line of the application; None if it is not reported."""

    def run(self, call: Callable[[], Any]) -> Any:
        """Make the call."""
        if self.trace is None or self.line is None:
            return call()
        return run(self._passing(self.trace, self.line, call, self.trace.wait), _do)

    async def arun(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """`run`, awaited."""
        if self.trace is None or self.line is None:
            return await call()
        passing = self._passing(self.trace, self.line, call, self.trace.await_other)
        return await run_async(passing, _ado)

    def _passing(
        self, trace: Trace, line: Line, call: Callable[[], Any], wait: Callable[[], Any]
    ) -> Generator[Callable[[], Any], Any, Any]:
        if trace.reach(self.kind, "before", self.text, line):
            yield wait
        token = inside.set(True)
        try:
            answer = yield call
        finally:
            inside.reset(token)
        if isinstance(answer, sqlite3.Cursor):
            trace.cursors.add(answer)
        if trace.reach(self.kind, "after", self.text, line):
            yield wait
        return answer


def _do(command: Callable[[], Any]) -> Any:
    return command()


async def _ado(command: Callable[[], Any]) -> Any:
    value = command()
    return await value if inspect.isawaitable(value) else value


def reported(passage: Callable[..., Passage]) -> Callable[[Any], Any]:
    """Makes of a method one that reports its calls: `passage` is called with its arguments."""

    def make(method: Any) -> Any:
        @wraps(method)
        def wrapper(*args: Any, **options: Any) -> Any:
            return passage(*args, **options).run(partial(method, *args, **options))

        @wraps(method)
        async def awaited(*args: Any, **options: Any) -> Any:
            return await passage(*args, **options).arun(partial(method, *args, **options))

        return awaited if inspect.iscoroutinefunction(method) else wrapper

    return make


class StatementPassage(Passage):
    """One statement or commit on its way to the database."""

    def __init__(self, text: object, connection: Any = None) -> None:
        sql = text.decode() if isinstance(text, bytes) else str(text)
        super().__init__("commit" if _ENDS.match(sql) else "statement", sql)
        if self.trace is None:
            return
        if self.trace.is_dead and self.kind == "commit":
            raise Crash
        if self.kind == "commit" or not _QUIET.match(sql):
            self.line: Line | None = line_of_application(direct=self.kind == "statement")
        if self.line is not None and not _is_ours(connection):
            self.trace.connections[id(connection)] = connection
            seen.add(id(connection))


class TracedStore:
    """The database of an Onefold: a call that the application makes is a point, as one commit."""

    def __init__(self, database: Database) -> None:
        self.database: Database = database
        self.alook: Any = database.alook

        def commit(_what: object, *, write: bool = True) -> StatementPassage:
            return StatementPassage("commit of Onefold" if write else "set")

        self.transact: Any = reported(commit)(database.transact)
        self.atransact: Any = reported(commit)(database.atransact)
        self.batch: Any = reported(commit)(database.batch)
        self.abatch: Any = reported(commit)(database.abatch)
