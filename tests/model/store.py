"""The database under a state machine, and the machine's own look into its tables.

One migrated database serves all examples of a machine; an example leaves it empty. That is much
faster than a database each, on PostgreSQL above all.
"""

import sqlite3
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import psycopg
from hypothesis import settings
from psycopg.rows import tuple_row

from onefold import Onefold
from tests.fixtures.patience import LOCK
from tests.fixtures.proof import repetitions

# An example is cheap here, and the interesting states are many steps away.
LENGTH = settings(
    deadline=None,
    max_examples=repetitions(35, soak=2000),
    stateful_step_count=repetitions(40, soak=60),
)
SHRINKING = 3600
"""Seconds. A good run is short; one that fails takes minutes to find its simplest example."""

START = datetime(2030, 1, 1, tzinfo=UTC)
TABLES = ("job", "claim", "duplicate", "duplicate_tally", "attempt")


class Store(Protocol):
    """What a machine needs: Onefold under a clock of its own, and raw SQL."""

    onefold: Onefold
    now: int
    """Seconds since START: the machine moves it."""

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run SQL in which `{table}` stands for a table of ours."""
        ...

    def clear(self) -> None:
        """Empty all tables, and set the clock back."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection of the caller's own, for `within`."""
        ...


def moment(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def seconds(micros: int | None) -> int | None:
    """A stored time, as the machine counts."""
    if micros is None:
        return None
    whole, rest = divmod(micros - int(START.timestamp()) * 1_000_000, 1_000_000)
    assert rest == 0
    return whole


class SqliteStore:
    """A file."""

    def __init__(self, url: str) -> None:
        self.now = 0
        self.onefold = Onefold(url, clock=lambda: moment(self.now), busy_timeout=LOCK)
        self.onefold.migrate()
        self._path = url.removeprefix("sqlite:///")
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._names = {table: f"onefold_{table}" for table in TABLES}

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(text.format(**self._names)).fetchall()

    def clear(self) -> None:
        self.now = 0
        for table in TABLES:
            self.rows(f"delete from {{{table}}}")

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path)) as connection:
            yield connection

    def close(self) -> None:
        self._connection.close()
        self.onefold.close()


class PostgresStore:
    """A schema."""

    def __init__(self, url: str, schema: str) -> None:
        self.now = 0
        self.onefold = Onefold(
            url, schema=schema, clock=lambda: moment(self.now), busy_timeout=LOCK
        )
        self.onefold.migrate()
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True, row_factory=tuple_row)
        self._names = {table: f"{schema}.{table}" for table in TABLES}

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(text.format(**self._names).encode())
        return cursor.fetchall() if cursor.description else []

    def clear(self) -> None:
        self.now = 0
        self.rows(";".join(f"delete from {{{table}}}" for table in TABLES))

    @contextmanager
    def transaction(self) -> Generator[psycopg.Connection]:
        with closing(psycopg.connect(self._url)) as connection:
            yield connection
            # Not by closing alone: the server would notice that a moment later, and hold the
            # transaction's locks until then.
            connection.rollback()

    def close(self) -> None:
        self._connection.close()
        self.onefold.close()
