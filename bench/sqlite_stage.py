"""Prepares SQLite before a measurement: a file, tables, jobs."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.payloads import KIND, encode, payloads
from onefold import Onefold
from onefold.model.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Generator

STORED: Final = "select count(*) from onefold_job"
FINISHED: Final = "select count(*) from onefold_job where state = 2"
SETTLED: Final = "select count(*) from onefold_claim where state = 1 and result is not null"

# The columns of Onefold's own insert (insert_job.sql), of a batch as of one job.
COLUMNS: Final = (
    *("shard", "id", "tenant", "queue", "kind", "priority", "run_at", "max_attempts", "payload"),
    *("fingerprint", "unique_kind", "unique_key", "unique_states", "unique_until", "created_at"),
    *("expires_at", "options", "group_key"),
)
_MARKS: Final = ", ".join("?" for _ in COLUMNS)
INSERT: Final = f"insert into onefold_job ({', '.join(COLUMNS)}) values ({_MARKS})"


def row(content: dict[str, Any]) -> tuple[Any, ...]:
    """A job as Onefold stores it."""
    now = 1_700_000_000_000_000
    text = encode(content).decode()
    return (
        *(0, new_id(), "", "default", KIND, 0, now, 8, text),
        *(None, None, None, 0, None, now, None, None, None),
    )


def path_of(url: str) -> Path:
    """The file of a URL."""
    return Path(url.removeprefix("sqlite:///"))


def new_file(url: str) -> None:
    """Remove what an earlier run has left."""
    path = path_of(url)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def onefold_file(url: str) -> None:
    """A new file with Onefold's tables."""
    new_file(url)
    with Onefold(url) as onefold:
        onefold.migrate()


def connect(url: str) -> sqlite3.Connection:
    """As durable as Onefold's own connections."""
    connection = sqlite3.connect(path_of(url), isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    return connection


@contextmanager
def shared(url: str) -> Generator[sqlite3.Connection]:
    """A connection for several threads, of which one at a time uses it."""
    path = path_of(url)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as shared:
        shared.execute("pragma synchronous = full")
        yield shared


def load(url: str, count: int) -> None:
    """A new file with so many jobs to take."""
    onefold_file(url)
    with closing(connect(url)) as connection:
        connection.execute("begin immediate")
        connection.executemany(INSERT, map(row, payloads(count)))
        connection.execute("commit")
        connection.execute("pragma wal_checkpoint(truncate)")


def expect(url: str, query: str, wanted: int) -> None:
    """A contestant that has not done all of its work has no figure."""
    with closing(connect(url)) as connection:
        (found,) = connection.execute(query).fetchone()
    if found != wanted:
        raise RuntimeError(f"{wanted} jobs were expected, and there are {found}: {query}")
