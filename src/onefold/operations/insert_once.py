"""Insert a row of the application once, by the unique constraint of its table.

1. The table is inspected first. A wrong column would be a database error, which aborts the caller's
   transaction on PostgreSQL.
2. The conflict clause names the columns of the key: a violation of another constraint is an error.
3. The database compares the values: it does not always store a value as it was written.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import DatabaseBusy, InvalidInput
from onefold.model.insert_once import Existing, Inserted
from onefold.operations.statement import Statement, quoted
from onefold.operations.unique_keys import ROUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.model.insert_once import Natural
    from onefold.operations.statement import Operation, Row, Rows, Sql

# PostgreSQL cannot compare these types, or compares them differently.
_SHAPELESS: Final = frozenset({
    "box", "circle", "json", "line", "lseg", "path", "point", "polygon", "xml",
})  # fmt: skip


class _Given(list[Any]):
    """A list that is one value of the caller, for the driver to adapt: not a batch of ours."""


class _Table(msgspec.Struct, frozen=True):
    """A table of the application, and the parameter names of its columns."""

    name: str
    types: dict[str, str]
    parameters: dict[str, str]

    @property
    def columns(self) -> str:
        return ", ".join(map(quoted, self.types))


def insert_once(sql: Sql, wanted: Natural) -> Operation[Inserted | Existing]:
    """Insert, or return the existing row."""
    table = yield from _look(sql, wanted)
    given = {table.parameters[column]: _given(value) for column, value in wanted.values.items()}
    for _ in range(ROUNDS):
        rows = yield Statement("insert_once", _insert(table, wanted), given)
        if rows:
            return Inserted(_row(table, rows[0]))
        rows = yield Statement("find_natural", _find(sql, table, wanted), given)
        if rows:
            return _existing(table, wanted, rows[0])
    raise DatabaseBusy(
        f"a row of {wanted.label} with this key came and went {ROUNDS} times, or cannot be seen",
        waited=timedelta(0),
    )


def _given(value: Any) -> Any:
    return _Given(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType]


def _look(sql: Sql, wanted: Natural) -> Operation[_Table]:
    rows: Rows = yield sql(
        "describe_table", schema=wanted.schema, table=wanted.table, keys=list(wanted.on)
    )
    if not rows:
        raise InvalidInput("table", f"{wanted.label!r} is not there")
    types = {column: kind for column, kind, _ in rows}
    unknown = [column for column in wanted.values if column not in types]
    if unknown:
        raise InvalidInput("values", f"{wanted.label!r} has no column {unknown[0]!r}")
    if not rows[0][2]:
        raise InvalidInput(
            "on",
            f"{wanted.label!r} has no unique constraint on just {', '.join(wanted.on)}: without it"
            " two at once would both insert. A partial index does not count.",
        )
    parts = (wanted.table,) if wanted.schema is None else (wanted.schema, wanted.table)
    # Names of parameters are letters, whatever the columns are named.
    letters = map("".join, product("v", "_", *[ascii_lowercase] * 3))
    return _Table(
        ".".join(map(quoted, parts)),
        types,
        dict(zip(wanted.values, letters, strict=False)),
    )


def _insert(table: _Table, wanted: Natural) -> str:
    columns = ", ".join(map(quoted, wanted.values))
    values = ", ".join(f":{table.parameters[column]}" for column in wanted.values)
    return (  # names are quoted, and values bound
        f"insert into {table.name} ({columns}) values ({values})"  # noqa: S608
        f" on conflict ({', '.join(map(quoted, wanted.on))}) do nothing returning {table.columns}"
    )


def _find(sql: Sql, table: _Table, wanted: Natural) -> str:
    differs = [_differs(sql, table, column) for column in _others(wanted)]
    where = [f"{quoted(column)} = {_stored(sql, table, column)}" for column in wanted.on]
    return (  # the same
        f"select {', '.join([table.columns, *differs])} from {table.name}"  # noqa: S608
        f" where {' and '.join(where)}"
    )


def _differs(sql: Sql, table: _Table, column: str) -> str:
    name, value = quoted(column), _stored(sql, table, column)
    if sql.dialect == "sqlite":
        return f"{name} is not {value}"
    if table.types[column].removesuffix("[]") in _SHAPELESS:
        return f"{name}::text is distinct from {value}::text"
    return f"{name} is distinct from {value}"


def _stored(sql: Sql, table: _Table, column: str) -> str:
    """A value as its column stores it: SQLite converts it, PostgreSQL rounds it.

    A value that does not fit was rejected by the insert; it is not truncated here.
    """
    value = f":{table.parameters[column]}"
    return value if sql.dialect == "sqlite" else f"cast({value} as {table.types[column]})"


def _others(wanted: Natural) -> Sequence[str]:
    return [column for column in wanted.values if column not in wanted.on]


def _row(table: _Table, row: Row) -> dict[str, Any]:
    return dict(zip(table.types, row, strict=False))


def _existing(table: _Table, wanted: Natural, row: Row) -> Existing:
    said = zip(_others(wanted), row[len(table.types) :], strict=True)
    return Existing(_row(table, row), tuple(column for column, differs in said if differs))
