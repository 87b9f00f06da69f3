"""Copies of a database for tests: store all rows, put them back, and read the tables.

A copy is put back in place, so connections of the application stay valid.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from onefold.databases.sqlite.database import path_of
from onefold.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PATIENCE: Final = 10.0
"""Seconds to wait for a lock."""
LOCKED: Final = 0.05
"""Seconds without progress, while a file is locked, that mean waiting."""
WAITING: Final = 0.01
"""Seconds without progress after which PostgreSQL is asked."""
EMPTY_COPY: Final = 21
"""Bytes of a binary copy without rows."""

# The original one: `points.traced` replaces it.
_connect: Final = sqlite3.connect


class Table(msgspec.Struct, frozen=True):
    """The rows of a table."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    generated: tuple[str, ...]
    """The columns that a sequence of the database fills."""


class SqliteSnapshots:
    """A SQLite file."""

    def __init__(self, url: str) -> None:
        self._path = path_of(url)
        self._copies: list[sqlite3.Connection] = []

    @cached_property
    def _target(self) -> sqlite3.Connection:
        """Receives copies, and has to read the schema again after each of them."""
        connection = self._open()
        connection.execute("pragma synchronous = off")  # a test need not survive a power failure
        return connection

    @cached_property
    def _source(self) -> sqlite3.Connection:
        """Reads tables."""
        return self._open()

    def _open(self) -> sqlite3.Connection:
        return _connect(self._path, isolation_level=None, check_same_thread=False)

    def connect(self) -> Any:
        """A new connection of sqlite3, which the points see."""
        return sqlite3.connect(self._path)

    def aconnect(self) -> Any:
        """There is no usual async driver."""
        raise UsageError(
            "An async function needs a connection: give connect=lambda: aiosqlite.connect(…)."
        )

    def store(self) -> tuple[sqlite3.Connection, int]:
        """Copy the file into memory; with the version of its schema."""
        copy = _connect(":memory:", check_same_thread=False)
        self._copies.append(copy)
        self._source.backup(copy)
        return copy, self._version()

    def restore(self, stored: tuple[sqlite3.Connection, int]) -> None:
        """Copy it back."""
        until = time.monotonic() + PATIENCE

        def check(status: int, _left: int, _total: int) -> None:
            if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} and time.monotonic() > until:
                raise UsageError(
                    f"A connection keeps {self._path} locked, so its rows cannot be put back. Close"
                    " the connections that the handler opens, also after an error."
                )

        copy, version = stored
        is_same = self._version() == version
        copy.backup(self._target, progress=check, sleep=0.01)
        if is_same:
            # The copy has a new version: all connections would read the same schema again.
            self._target.execute(f"pragma schema_version = {version}")

    def skip_numbers(self) -> None:
        """Let autoincrement go on elsewhere, for each table at another place."""
        is_used = "select 1 from sqlite_master where name = 'sqlite_sequence'"
        if self._target.execute(is_used).fetchone():
            self._target.execute(
                "insert into sqlite_sequence (name, seq) select name, 0 from sqlite_master"
                " where type = 'table' and sql like '%autoincrement%'"
                " and name not in (select name from sqlite_sequence)"
            )
            self._target.execute("update sqlite_sequence set seq = seq + ? + rowid", [_SKIP])

    def _version(self) -> int:
        (version,) = self._source.execute("pragma schema_version").fetchone()
        return int(version)

    def excludes_writers(self) -> bool:
        """Whether a connection is writing."""
        with closing(_connect(self._path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
        return False

    def is_waiting(self, quiet: float) -> bool:
        """Whether it may be waiting: a connection is writing, perhaps its own."""
        return quiet > LOCKED and self.excludes_writers()

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._source, self._target, *self._copies):
            connection.close()

    def tables(self) -> list[Table]:
        """Read all rows."""
        found = self._source.execute(
            "select name from sqlite_master where type = 'table' and name not glob 'sqlite_*'"
            " and name not glob 'onefold_*' order by name"
        ).fetchall()
        return [self._table(name) for (name,) in found]

    def _table(self, name: str) -> Table:
        quoted = '"' + name.replace('"', '""') + '"'
        execute = self._source.execute
        info = execute(f"pragma table_info({quoted})").fetchall()
        keys = [row for row in info if row[5]]
        is_generated = len(keys) == 1 and keys[0][2].upper() == "INTEGER"
        return Table(
            name,
            tuple(row[1] for row in info),
            execute(f"select * from {quoted}").fetchall(),  # noqa: S608 - quoted
            (keys[0][1],) if is_generated else (),
        )


_TABLES: Final = """
select c.oid::regclass::text, n.nspname = %s
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where c.relkind = 'r' and (n.nspname = any(current_schemas(false)) or n.nspname = %s)
order by 1
"""
_COLUMNS: Final = """
select
    a.attrelid::regclass::text, a.attname, quote_ident(a.attname), a.attgenerated <> '',
    a.attidentity <> '' or coalesce(pg_get_expr(d.adbin, d.adrelid), '') ~ '^nextval\\('
from pg_attribute as a
left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = any(%s::regclass[]) and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
"""
_WAITING: Final = """
select exists (
    select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
)
"""
_SEQUENCES: Final = """
select array_agg(format('%%I.%%I', schemaname, sequencename)), array_agg(last_value)
from pg_sequences
where schemaname = any(current_schemas(false)) or schemaname = %s
"""
_SKIP: Final = 1009
"""Numbers that a second clean run skips: few, as columns and texts may have room for few digits."""
_SKIP_NUMBERS: Final = """
select setval(name, place::bigint)
from (
    select
        format('%%I.%%I', schemaname, sequencename)::regclass as name, min_value, max_value,
        coalesce(last_value, start_value)::numeric
        + increment_by * (%s + row_number() over (order by schemaname, sequencename)) as place
    from pg_sequences
    where schemaname = any(current_schemas(false))
) as sequence
where place between min_value and max_value
"""
_SET_SEQUENCES: Final = """
select setval(name::regclass, coalesce(last, 1), last is not null)
from unnest(%s::text[], %s::bigint[]) as one (name, last)
"""


class _Column(NamedTuple):
    """A row of `_COLUMNS`."""

    table: str
    name: str
    quoted: str
    is_computed: bool
    is_generated: bool


class PostgresSnapshots:
    """A database of PostgreSQL. Its user must be the owner of the tables."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema
        self._columns: dict[str, list[_Column]] = {}
        """Of the application, as long as it has the same tables."""

    @cached_property
    def _connection(self) -> Any:
        connection = self.connect()
        connection.autocommit = True
        return connection

    def connect(self) -> Any:
        """A new connection of psycopg."""
        import psycopg

        return psycopg.connect(self._url)

    def aconnect(self) -> Any:
        """`connect`, awaited."""
        import psycopg

        return psycopg.AsyncConnection.connect(self._url)

    def excludes_writers(self) -> bool:
        """Writers lock rows."""
        return False

    def is_waiting(self, quiet: float) -> bool:
        """Whether a connection to this database waits for a lock."""
        return quiet > WAITING and bool(self._connection.execute(_WAITING).fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _tables(self) -> dict[str, bool]:
        """All tables, and whether each is Onefold's own."""
        return dict(self._connection.execute(_TABLES, [self._schema, self._schema]).fetchall())

    def _described(self, tables: Iterable[str]) -> dict[str, list[_Column]]:
        """The columns of the tables."""
        columns: dict[str, list[_Column]] = {table: [] for table in tables}
        for row in self._connection.execute(_COLUMNS, [list(columns)]):
            columns[row[0]].append(_Column(*row))
        return columns

    def store(self) -> tuple[dict[str, bytes], tuple[Any, ...]]:
        """Copy all rows into memory: the copies of the tables, and the values of the sequences."""
        rows: dict[str, bytes] = {}
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for table, columns in self._described(self._tables()).items():
                names = ", ".join(each.quoted for each in columns if not each.is_computed)
                with cursor.copy(f"copy {table} ({names}) to stdout (format binary)") as copy:
                    rows[f"{table} ({names})"] = b"".join(bytes(part) for part in copy)
            sequences = cursor.execute(_SEQUENCES, [self._schema]).fetchone()
        return {table: copy for table, copy in rows.items() if len(copy) > EMPTY_COPY}, sequences

    def restore(self, stored: tuple[dict[str, bytes], tuple[Any, ...]]) -> None:
        """Copy them back, in one transaction."""
        from psycopg import errors

        rows, sequences = stored
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                # Without the checks of foreign keys: the order of the tables does not matter.
                cursor.execute(
                    f"set local lock_timeout = {PATIENCE * 1000:.0f};"
                    " set local synchronous_commit = off;"
                    " set local session_replication_role = replica"
                )
                deletes = [f"delete from {table}" for table in self._tables()]  # noqa: S608 - quoted
                cursor.execute("; ".join(deletes))
                for table, copied in rows.items():
                    with cursor.copy(f"copy {table} from stdin (format binary)") as copy:
                        copy.write(copied)
                cursor.execute(_SET_SEQUENCES, sequences)
        except errors.LockNotAvailable as error:
            raise UsageError(
                "A transaction that is still open keeps rows locked, so they cannot be put back."
                " End the transactions that the handler begins, also after an error."
            ) from error
        except errors.InsufficientPrivilege as error:
            raise UsageError(
                "The rows are put back without checks of foreign keys, which this user may not"
                " switch off. Use a superuser of a server for tests, or grant set on parameter"
                " session_replication_role."
            ) from error

    def skip_numbers(self) -> None:
        """Let each sequence go on at a place of its own."""
        self._connection.execute(_SKIP_NUMBERS, [_SKIP])

    def tables(self) -> list[Table]:
        """Read all rows."""
        found = [table for table, is_ours in self._tables().items() if not is_ours]
        if list(self._columns) != found:
            self._columns = self._described(found)
        return [self._table(name, columns) for name, columns in self._columns.items()]

    def _table(self, name: str, columns: Sequence[_Column]) -> Table:
        cursor = self._connection.execute(f"select * from {name}")  # noqa: S608 - quoted
        return Table(
            name,
            tuple(each.name for each in cursor.description),
            cursor.fetchall(),
            tuple(each.name for each in columns if each.is_generated),
        )


Snapshots: TypeAlias = SqliteSnapshots | PostgresSnapshots
"""The database of a test. Its connections stay open: a new one has to read the schema."""


def snapshots(url: str, schema: str) -> Snapshots:
    """The database of a URL. On PostgreSQL: the schemas of its search path, and Onefold's."""
    return SqliteSnapshots(url) if url.startswith("sqlite") else PostgresSnapshots(url, schema)
