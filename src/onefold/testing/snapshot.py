"""Copies of a database for tests: store all rows, put them back, and read the tables.

A copy is put back in place, so connections of the application stay valid.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from onefold.databases.sqlite.database import path_of
from onefold.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PATIENCE: Final = 10.0
"""Seconds to wait for a lock."""

# The original one: `points.traced` replaces it.
_connect: Final = sqlite3.connect


class Table(msgspec.Struct, frozen=True):
    """The rows of a table, and how its columns refer to others."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    generated: str | None
    """The key that the database makes."""
    references: Mapping[str, str]
    """The columns that have keys of other tables, with the names of these."""


class Snapshots(Protocol):
    """The database of a test."""

    def store(self) -> None:
        """Remember all rows as they are now."""
        ...

    def restore(self) -> None:
        """Put the remembered rows back."""
        ...

    def tables(self) -> list[Table]:
        """The tables of the application, without Onefold's own."""
        ...

    def is_locked(self) -> bool:
        """Whether a delivery may be waiting for a lock of another one."""
        ...

    def connect(self) -> Any:
        """A new connection of the usual driver."""
        ...

    def close(self) -> None:
        """Close the connection that looks for locks."""
        ...


def snapshots(url: str, schema: str) -> Snapshots:
    """The database of a URL. On PostgreSQL: the schemas of its search path, and Onefold's."""
    return SqliteSnapshots(url) if url.startswith("sqlite") else PostgresSnapshots(url, schema)


class SqliteSnapshots:
    """A SQLite file."""

    def __init__(self, url: str) -> None:
        self._path = path_of(url)
        self._copy = _connect(":memory:", check_same_thread=False)

    def connect(self) -> Any:
        """A new connection of sqlite3, which the points see."""
        return sqlite3.connect(self._path)

    def store(self) -> None:
        """Copy the file into memory."""
        with closing(_connect(self._path)) as source:
            source.backup(self._copy)

    def restore(self) -> None:
        """Copy it back."""
        until = time.monotonic() + PATIENCE

        def check(status: int, _left: int, _total: int) -> None:
            if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} and time.monotonic() > until:
                raise UsageError(
                    f"A connection keeps {self._path} locked, so its rows cannot be put back. Close"
                    " the connections that the handler opens, also after an error."
                )

        with closing(_connect(self._path)) as target:
            target.execute("pragma synchronous = off")  # a test need not survive a power failure
            self._copy.backup(target, progress=check, sleep=0.01)

    def is_locked(self) -> bool:
        """Whether a connection is writing."""
        with closing(_connect(self._path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
        return False

    def close(self) -> None:
        """Nothing is open."""

    def tables(self) -> list[Table]:
        """Read all rows."""
        with closing(_connect(self._path)) as connection:
            found = connection.execute(
                "select name from sqlite_master where type = 'table' and name not glob 'sqlite_*'"
                " and name not glob 'onefold_*' order by name"
            ).fetchall()
            return [self._table(connection, name) for (name,) in found]

    def _table(self, connection: sqlite3.Connection, name: str) -> Table:
        quoted = '"' + name.replace('"', '""') + '"'
        info = connection.execute(f"pragma table_info({quoted})").fetchall()
        keys = [row for row in info if row[5]]
        generated = keys[0][1] if len(keys) == 1 and keys[0][2].upper() == "INTEGER" else None
        references = connection.execute(f"pragma foreign_key_list({quoted})").fetchall()
        return Table(
            name,
            tuple(row[1] for row in info),
            connection.execute(f"select * from {quoted}").fetchall(),  # noqa: S608 - quoted
            generated,
            {row[3]: row[2] for row in references},
        )


_TABLES: Final = """
select c.oid::regclass::text, n.nspname
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where c.relkind = 'r' and (n.nspname = any(current_schemas(false)) or n.nspname = %s)
order by 1
"""
_COLUMNS: Final = """
select
    a.attname, a.attgenerated <> '',
    a.attidentity <> '' or coalesce(pg_get_expr(d.adbin, d.adrelid), '') ~ '^nextval\\('
from pg_attribute as a
left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
_REFERENCES: Final = """
select a.attname, c.confrelid::regclass::text
from pg_constraint as c
join pg_attribute as a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
where c.contype = 'f' and cardinality(c.conkey) = 1 and c.conrelid = %s::regclass
"""
_WAITING: Final = """
select exists (
    select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
)
"""
_SEQUENCES: Final = """
select format('%%I.%%I', schemaname, sequencename), last_value
from pg_sequences
where schemaname = any(current_schemas(false)) or schemaname = %s
"""


class PostgresSnapshots:
    """A database of PostgreSQL. Its user must be the owner of the tables."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema
        self._rows: dict[str, tuple[str, bytes]] = {}
        self._sequences: list[tuple[str, int | None]] = []
        self._observer: Any = None

    def connect(self) -> Any:
        """A new connection of psycopg."""
        import psycopg

        return psycopg.connect(self._url)

    def is_locked(self) -> bool:
        """Whether a connection to this database waits for a lock."""
        if self._observer is None:
            self._observer = self.connect()
            self._observer.autocommit = True
        return bool(self._observer.execute(_WAITING).fetchone()[0])

    def close(self) -> None:
        """Close the connection that looks for locks."""
        if self._observer is not None:
            self._observer.close()

    def store(self) -> None:
        """Copy all rows into memory."""
        with self.connect() as connection, connection.cursor() as cursor:
            self._sequences = cursor.execute(_SEQUENCES, [self._schema]).fetchall()
            for table, _ in cursor.execute(_TABLES, [self._schema]).fetchall():
                columns = cursor.execute(_COLUMNS, [table]).fetchall()
                names = ", ".join(
                    '"' + name.replace('"', '""') + '"' for name, made, _ in columns if not made
                )
                with cursor.copy(f"copy {table} ({names}) to stdout (format binary)") as copy:
                    self._rows[table] = (names, b"".join(bytes(part) for part in copy))

    def restore(self) -> None:
        """Copy them back, in one transaction."""
        from psycopg import errors

        try:
            with self.connect() as connection, connection.cursor() as cursor:
                self._put_back(cursor)
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

    def _put_back(self, cursor: Any) -> None:
        tables = [table for table, _ in cursor.execute(_TABLES, [self._schema]).fetchall()]
        cursor.execute(f"set local lock_timeout = {PATIENCE * 1000:.0f}")
        # Without the checks of foreign keys: the order of the tables does not matter.
        cursor.execute("set local session_replication_role = replica")
        for table in tables:
            cursor.execute(f"delete from {table}")  # noqa: S608 - quoted
        for table, (names, rows) in self._rows.items():
            with cursor.copy(f"copy {table} ({names}) from stdin (format binary)") as copy:
                copy.write(rows)
        for sequence, last in self._sequences:
            cursor.execute(
                "select setval(%s::regclass, coalesce(%s, 1), %s)",
                [sequence, last, last is not None],
            )

    def tables(self) -> list[Table]:
        """Read all rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            found = cursor.execute(_TABLES, [self._schema]).fetchall()
            return [self._table(cursor, name) for name, schema in found if schema != self._schema]

    def _table(self, cursor: Any, name: str) -> Table:
        columns = cursor.execute(_COLUMNS, [name]).fetchall()
        generated = next((column for column, _, made in columns if made), None)
        references = dict(cursor.execute(_REFERENCES, [name]).fetchall())
        rows = cursor.execute(f"select * from {name}").fetchall()  # noqa: S608 - quoted
        return Table(name, tuple(row[0] for row in columns), rows, generated, references)


def normalized(
    tables: Sequence[Table], ignored: Callable[[str, str], bool]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table as dictionaries, without ignored columns.

    Keys that the database makes become their place in the order of keys, and so do references to
    them: a transaction that was rolled back leaves a gap in a sequence.
    """
    places: dict[str, dict[Any, str]] = {}
    for table in tables:
        if table.generated is not None:
            at = table.columns.index(table.generated)
            numbers = count(1)
            keys = sorted(row[at] for row in table.rows)
            places[table.name] = {key: f"#{next(numbers)}" for key in keys}
    found: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        rows: list[dict[str, Any]] = []
        for row in table.rows:
            values = dict(zip(table.columns, row, strict=True))
            for column, value in values.items():
                owner = table.name if column == table.generated else table.references.get(column)
                if owner in places and value is not None:
                    values[column] = places[owner].get(value, value)
            rows.append({name: v for name, v in values.items() if not ignored(table.name, name)})
        found[table.name] = rows
    return found
