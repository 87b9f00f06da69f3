"""Forks: no connection to a SQLite file is shared by two processes.

SQLite keeps the locks of a process in its memory. A forked child inherits that list without the
locks: it takes none of its own, and the last other process that closes the file deletes the log to
which the child writes.

1. A fork waits for the reads and writes of other threads, and then closes every idle connection.
   Parent and child open theirs at the next use.
2. A connection that is in use is inherited: a handler's transaction, one of the application's own.
   The child finds its file among its open files, and refuses to use that database.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from onefold.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

POLL: Final = 0.001
LONGEST_WAIT: Final = 5.0
"""Seconds that a fork waits for uses. The connection of a longer one is inherited."""
FILES: Final = Path("/dev/fd")
"""Lists the open files of a process, on Linux and macOS."""
MOST_FILES: Final = 65_536


class Forked(Protocol):
    """The connections of this process to one file."""

    def paused(self, seconds: float) -> Callable[[], None] | None:
        """Wait for the write under way, let none begin, and close its connection.

        The returned function lets writes begin. None if the write takes too long.
        """

    def close_idle(self) -> None:
        """Close the other connections that are not in use. All are opened again on demand."""

    def disown(self) -> None:
        """In the child: let no statement of a write that a signal handler interrupted pass."""


class Forks:
    """The forks of this process. As a context manager, it marks a short use of a connection."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may fork, or use a connection, at any moment.
        self._lock = threading.RLock()
        self._members: WeakSet[Forked] = WeakSet()
        self._under_way: dict[int, list[ExitStack]] = {}
        """By thread: how to go on after its forks. A signal handler may fork during a fork."""
        self._users: dict[int, None] = {}
        self._process = os.getpid()
        self._inherited: set[tuple[int, int]] = set()
        """Device and number of each file that was open when this process was forked."""

    def __enter__(self) -> None:
        # Without the lock, which costs more: first the mark, then the look, and a fork looks last.
        self._users[get_ident()] = None
        if self._under_way:
            del self._users[get_ident()]
            with self._lock:
                self._users[get_ident()] = None

    def __exit__(self, *_: object) -> None:
        self._users.pop(get_ident(), None)

    @property
    def is_under_way(self) -> bool:
        """Whether a use would wait for a fork. An event loop does something else meanwhile."""
        return bool(self._under_way)

    def add(self, member: Forked) -> None:
        """Close the idle connections of this file before each fork, from now on."""
        with self._lock:
            self._members.add(member)

    def refuse_inherited(self, path: Path) -> None:
        """Raise if the parent had the file open when it forked this process."""
        if not self._inherited or not path.exists():
            return
        if _identity(path.stat()) in self._inherited:
            raise UsageError(
                f"A connection to {path} was open when this process was forked. A child does not"
                " inherit the locks of SQLite, so jobs that it stores could be lost. Before the"
                " fork, end transactions, and close your own connections and cursors"
                " (SQLAlchemy: engine.dispose(), Django: connections.close_all()). Or start the"
                " process with multiprocessing's spawn or forkserver.",
                path=str(path),
            )

    def inherit(self, path: Path) -> None:
        """An object has used the file in a parent. A server in C forks without these functions."""
        if self._process != os.getpid() and path.exists():
            self._inherited.add(_identity(path.stat()))

    def before(self) -> None:
        """Wait for short uses, let none begin, and close what is idle.

        Nothing is waited for without end: a thread that is in use may wait for this one. What is
        not closed is inherited, and the child refuses it.
        """
        go_on = ExitStack()
        self._under_way.setdefault(get_ident(), []).append(go_on)
        deadline = time.monotonic() + LONGEST_WAIT
        if not self._lock.acquire(timeout=LONGEST_WAIT):
            return
        go_on.callback(self._lock.release)
        for member in list(self._members):
            resume = member.paused(max(0.0, deadline - time.monotonic()))
            if resume is not None:
                go_on.callback(resume)
        while self._others() and time.monotonic() < deadline:
            time.sleep(POLL)
        for member in list(self._members):
            member.close_idle()

    def _others(self) -> set[int]:
        """The other threads that use a connection. An interrupted thread may have left its mark."""
        alive = {thread.ident for thread in threading.enumerate()}
        return {user for user in list(self._users) if user in alive} - {get_ident()}

    def after_in_parent(self) -> None:
        """Go on."""
        under_way = self._under_way[get_ident()]
        go_on = under_way.pop()
        if not under_way:
            del self._under_way[get_ident()]
        go_on.close()

    def after_in_child(self) -> None:
        """Begin without connections."""
        self._lock = threading.RLock()
        for member in list(self._members):
            member.disown()
        self._members.clear()
        self._under_way.clear()
        self._users.clear()
        self._process = os.getpid()
        self._inherited = set(_open_files())


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _open_files() -> Iterator[tuple[int, int]]:
    try:
        numbers: Iterable[int] = [int(file.name) for file in FILES.iterdir()]
    except OSError:  # There is no such folder, or no number is left to open it.
        numbers = range(min(os.sysconf("SC_OPEN_MAX"), MOST_FILES))
    for number in numbers:
        with suppress(OSError):  # closed by now, as the listing itself
            found = os.fstat(number)
            if stat.S_ISREG(found.st_mode):
                yield _identity(found)


forks: Final = Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=forks.before,
        after_in_parent=forks.after_in_parent,
        after_in_child=forks.after_in_child,
    )
