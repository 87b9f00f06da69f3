"""What PostgreSQL's processes use while the watch runs, and how much WAL they write.

Every process of the server is a child of one, the postmaster, which also knows the time of its
children that have ended. So the time of all of them together is exact. Those in the background
(walwriter, checkpointer, autovacuum and others) are recognised by their titles. Most of them never
end. Autovacuum's workers do, so a thread looks for them while the watch runs.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import psycopg

from bench.usage import Usage, children, cpu_seconds, title

if TYPE_CHECKING:
    from collections.abc import Generator

GLANCE: Final = 0.02
"""Seconds between two looks for autovacuum: more of its last ones than this are not seen."""
BACKEND: Final = re.compile(r"postgres: (?:postgres |parallel worker)")
"""The title of a process that serves a connection: it starts with the user."""
AUTOVACUUM: Final = "postgres: autovacuum worker"


class Spent(NamedTuple):
    """What the server has used between two moments."""

    backends: float
    """CPU seconds of the processes that serve connections, those that have ended too."""
    background: float
    """CPU seconds of all others."""
    wal_bytes: int


class Meter:
    """Reads one server, which must serve no other purpose meanwhile."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._own = {connection.info.backend_pid}
        self._postmaster = Usage.of(connection.info.backend_pid).parent
        self._stop = Event()
        self._looking = Thread(target=self._look, daemon=True)
        self._cleaners: dict[int, float] = {}
        """Autovacuum's workers, with the time that each was seen to have used."""
        self._wal_before = 0
        self._ended_before = 0.0
        self._before: dict[int, float] = {}

    def leave_out(self, pid: int) -> None:
        """A connection of the benchmark's own is not counted."""
        self._own.add(pid)

    def start(self) -> None:
        """From here on it counts."""
        self._looking.start()
        self._wal_before = self._wal()
        self._ended_before = Usage.of(self._postmaster).ended_seconds
        self._before = self._living()

    def stop(self) -> Spent:
        """Until here."""
        living, ended = self._living(), Usage.of(self._postmaster).ended_seconds
        titles = {pid: title(pid) for pid in living}
        self._stop.set()
        self._looking.join()
        background = [
            used - self._before.get(pid, 0.0)
            for pid, used in (self._cleaners | living).items()
            if pid not in self._own and (pid in self._cleaners or not BACKEND.match(titles[pid]))
        ]
        own = sum(living.get(pid, 0.0) - self._before.get(pid, 0.0) for pid in self._own)
        total = sum(living.values()) + ended - sum(self._before.values()) - self._ended_before
        # What has ended is counted in ticks, and the rest is not: less than nothing is nothing.
        backends = max(0.0, total - own - sum(background))
        return Spent(backends, sum(background), self._wal() - self._wal_before)

    def _living(self) -> dict[int, float]:
        return {pid: cpu_seconds(pid) for pid in children(self._postmaster)}

    def _wal(self) -> int:
        query = b"select (pg_current_wal_insert_lsn() - '0/0')::bigint"
        ((wal,),) = self._connection.execute(query).fetchall()
        return int(wal)

    def _look(self) -> None:
        known: set[int] = set()
        while not self._stop.wait(GLANCE):
            for pid in set(children(self._postmaster)) - known:
                # A new process has its parent's title for a moment.
                if (name := title(pid)).startswith("postgres: "):
                    known.add(pid)
                if name.startswith(AUTOVACUUM):
                    self._cleaners[pid] = 0.0
            for pid, seen in self._cleaners.items():
                self._cleaners[pid] = cpu_seconds(pid) or seen


@contextmanager
def opened(url: str) -> Generator[Meter | None]:
    """A meter of the URL's server; None of SQLite, or where the system does not say."""
    if not url.startswith("postgresql:"):
        yield None
        return
    place = urlsplit(url)._replace(path="/postgres").geturl()
    with psycopg.connect(place, autocommit=True) as connection:
        known = Usage.of(connection.info.backend_pid).parent
        yield Meter(connection) if known else None
