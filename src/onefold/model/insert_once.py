"""Natural keys: the unique constraint that an application's table has.

`is_unique_violation` recognises the error of any supported driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from onefold.errors import InvalidInput
from onefold.model import checks

if TYPE_CHECKING:
    from collections.abc import Iterator


class Inserted(msgspec.Struct, frozen=True):
    """The row is new."""

    row: dict[str, Any]
    """All of its columns, as stored, defaults included."""


class Existing(msgspec.Struct, frozen=True):
    """A row with this key existed; nothing was written."""

    row: dict[str, Any]
    """All of its columns, as stored."""
    differs: tuple[str, ...] = ()
    """The columns that differ from the wanted row; empty if they are equal."""


class Natural(msgspec.Struct, frozen=True):
    """A row that should be in a table once."""

    schema: str | None
    table: str
    values: dict[str, Any]
    on: tuple[str, ...]

    @property
    def label(self) -> str:
        """The table, as the caller wrote it."""
        return self.table if self.schema is None else f"{self.schema}.{self.table}"


def natural(table: object, values: object, on: object) -> Natural:
    """Check what can be checked without the database."""
    schema, called = _table(table)
    checked = _values(values)
    return Natural(schema, called, checked, _on(on, checked))


def _table(table: object) -> tuple[str | None, str]:
    *schema, called = checks.key(table, "table").split(".")
    if len(schema) > 1 or not all((*schema, called)):
        raise InvalidInput("table", f"must be a name, or schema.name, got {table!r}")
    return (schema[0] if schema else None), called


def _values(values: object) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise InvalidInput("values", f"must be a mapping of columns to values, got {values!r}")
    checked = {
        checks.key(column, "values"): value
        for column, value in cast("Mapping[object, Any]", values).items()
    }
    for column, value in checked.items():
        if isinstance(value, str) and "\x00" in value:
            raise InvalidInput("values", f"of the column {column!r} must not contain NUL")
    return checked


def _on(on: object, values: Mapping[str, Any]) -> tuple[str, ...]:
    listed = [on] if isinstance(on, str) else on
    if not isinstance(listed, Sequence) or not listed:
        raise InvalidInput("on", f"must name the columns of a unique constraint, got {on!r}")
    columns = tuple(checks.key(column, "on") for column in cast("Sequence[object]", listed))
    if len(set(columns)) < len(columns):
        raise InvalidInput("on", f"must name a column once, got {on!r}")
    for column in columns:
        if column not in values:
            raise InvalidInput("on", f"names {column!r}, which has no value")
        if values[column] is None:
            raise InvalidInput(
                "on", f"names {column!r}, whose value is None: no null is equal to another"
            )
    return columns


UNIQUE_VIOLATION: Final = "23505"
"""The SQLSTATE of PostgreSQL."""

SQLITE_CODES: Final = frozenset({1555, 2067, 2579})
"""The extended codes of SQLite: primary key, unique constraint, row id."""


def is_unique_violation(error: BaseException) -> bool:
    """Whether a database rejected a row because it exists.

    Knows the errors of psycopg, psycopg2, asyncpg, sqlite3 and aiosqlite, and those of SQLAlchemy
    and Django that wrap them.
    """
    return any(
        getattr(one, "sqlstate", None) == UNIQUE_VIOLATION
        or getattr(one, "pgcode", None) == UNIQUE_VIOLATION
        or getattr(one, "sqlite_errorcode", None) in SQLITE_CODES
        for one in _layers(error)
    )


def _layers(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes: SQLAlchemy's `orig`, and `raise … from`.

    Not the context: a handler that repairs a violation may fail with another error.
    """
    seen: set[int] = set()
    one: object = error
    while isinstance(one, BaseException) and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = getattr(one, "orig", None) or one.__cause__
