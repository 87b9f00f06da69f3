"""A natural key: the unique constraint that a table already has, and what an insert meets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from onefold.errors import InvalidInput
from onefold.model import names


class Inserted(msgspec.Struct, frozen=True):
    """The row was not there, and is now."""

    row: dict[str, Any]
    """All of its columns, as the database has them, defaults included."""


class Existing(msgspec.Struct, frozen=True):
    """A row with these values in the columns of its key was there already; nothing was written."""

    row: dict[str, Any]
    """All of its columns, as the database has them."""
    differs: tuple[str, ...] = ()
    """The columns in which it is not what was to be inserted: none where it is the same."""


class Natural(msgspec.Struct, frozen=True):
    """A row that is to be in a table once."""

    schema: str | None
    table: str
    values: dict[str, Any]
    on: tuple[str, ...]

    @property
    def label(self) -> str:
        """The table, as the caller has written it."""
        return self.table if self.schema is None else f"{self.schema}.{self.table}"


def natural(table: object, values: object, on: object) -> Natural:
    """Check what can be checked before a database is asked."""
    schema, called = _table(table)
    checked = _values(values)
    return Natural(schema, called, checked, _on(on, checked))


def _table(table: object) -> tuple[str | None, str]:
    *schema, called = names.key(table, "table").split(".")
    if len(schema) > 1 or not all((*schema, called)):
        raise InvalidInput("table", f"must be a name, or schema.name, got {table!r}")
    return (schema[0] if schema else None), called


def _values(values: object) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise InvalidInput("values", f"must be a mapping of columns to values, got {values!r}")
    checked = {
        names.key(column, "values"): value
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
    columns = tuple(names.key(column, "on") for column in cast("Sequence[object]", listed))
    if len(set(columns)) < len(columns):
        raise InvalidInput("on", f"must name a column once, got {on!r}")
    for column in columns:
        if column not in values:
            raise InvalidInput("on", f"names {column!r}, of which there is no value")
        if values[column] is None:
            raise InvalidInput(
                "on", f"names {column!r}, whose value is None: no null is equal to another"
            )
    return columns
