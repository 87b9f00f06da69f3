"""A statement: SQL text with `:name` parameters, and their values.

`Sql` has the statements of one database, by the names of their files. Drivers write parameters
differently (`:name`, `%(name)s`, `$1`): `compiled` rewrites the text once.

`run` and `run_async` drive a generator, blocking and awaiting. An error is raised in the generator,
at its `yield`. A procedure may handle it. An operation never does: a failed statement has aborted
its transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from copy import copy
from functools import cache, lru_cache
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from onefold.model.ids import shard_of

if TYPE_CHECKING:
    from collections.abc import Awaitable


T = TypeVar("T")
RowT = TypeVar("RowT", bound=tuple[Any, ...])

Row: TypeAlias = Sequence[Any]
Rows: TypeAlias = Sequence[Row]
Operation: TypeAlias = Generator["Statement", Rows, T]
Dialect: TypeAlias = Literal["postgres", "sqlite"]
Style: TypeAlias = Literal["named", "pyformat", "numbered"]

# The alternatives before `name` are passed over: strings, quoted names, comments, casts.
_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*' | "[^"]*" | --[^\n]* | ::\w+ | (?<![:\w]):(?P<name>[a-z_]+) | %""",
    re.VERBOSE,
)


class Statement(msgspec.Struct, frozen=True):
    """One statement, ready to be run by any driver of its database."""

    name: str
    text: str
    parameters: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    """The parameters that `rows` have, one value per row."""
    rows: Sequence[tuple[Any, ...]] = ()
    common: frozenset[str] = frozenset()
    """Columns, never null, that are sent to PostgreSQL once if all rows have the same value."""
    each: bool = False
    """True: run once per row, not once for all. The result has the first value of every row that
    changed something. On PostgreSQL only for one row."""
    alone: bool = False
    """True: may be committed by itself, whatever its result is. Nothing else has to follow."""
    waits: bool = True
    """True: may wait for a lock, so it needs a lock timeout."""
    in_order: bool = False
    """True: goes along an index, and ends early. Without statistics, PostgreSQL takes a table for
    small, and would rather read all of it and sort. Our own connections prevent that."""
    ahead: Callable[[Rows], None] | None = None
    """Only for our own connections to PostgreSQL, which send the statement and do not wait. This
    function receives its rows, before the next statement that is not sent ahead returns its own."""

    def arrays(self, array: Callable[[tuple[Any, ...]], Any] = list) -> dict[str, Any]:
        """The parameters with a batch as one array per column, for PostgreSQL's unnest."""
        columns: dict[str, Any] = {}
        for name, value in self.parameters.items():
            columns[name] = array(tuple(value)) if value.__class__ is list else value
        if not self.columns:
            return columns
        if self.each:
            (row,) = self.rows
            columns.update(zip(self.columns, row, strict=True))
            return columns
        no_rows: list[tuple[Any, ...]] = [()] * len(self.columns)
        values = zip(*self.rows, strict=True) if self.rows else no_rows
        for name, column in zip(self.columns, values, strict=True):
            once = name in self.common and column.count(column[0]) == len(column)
            columns[name] = array(column[:1] if once else column)
        return columns

    def json(self) -> dict[str, Any]:
        """The parameters with a batch, and any list, as JSON text, for SQLite's json_each."""
        parameters: dict[str, Any] = {}
        for name, value in self.parameters.items():
            parameters[name] = _json(value) if value.__class__ is list else value
        if self.columns:
            parameters["rows"] = _json(self.rows)
        return parameters


def array_literal(values: tuple[Any, ...]) -> object:
    """An array as PostgreSQL writes it: psycopg needs three times as long for a list.

    A column of nulls becomes an empty array: `unnest` fills shorter arrays with nulls.
    """
    match kinds := set(map(type, values)):
        case _ if kinds <= {NoneType}:
            return "{}"
        case _ if kinds == {str}:
            return _text_array(values)
        case _ if kinds <= {str, NoneType}:
            return "{" + ",".join([_element(value) for value in values]) + "}"
        case _ if kinds <= {int, bool}:
            return "{" + ",".join(map(str, values)) + "}"
        case _ if kinds <= {int, bool, NoneType}:
            return "{" + ",".join(["NULL" if v is None else str(v) for v in values]) + "}"
        case _:
            return list(values)


def _text_array(values: tuple[str, ...]) -> object:
    # NUL separates the elements while quotes are escaped: PostgreSQL's text never has one.
    joined = "\0".join(values)
    if joined.count("\0") != len(values) - 1:
        return list(values)
    joined = joined.replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + joined.replace("\0", '","') + '"}'


def _element(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Sql:
    """The statements of one database, in one schema, for a number of shards."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        schema: str = "onefold",
        shards: int = 1,
        restarts: bool = False,
        resends: bool = False,
        notifies: bool = True,
        distributed: bool = False,
    ) -> None:
        """`schema` is for PostgreSQL; on SQLite the tables have a prefix instead."""
        self.dialect: Dialect = dialect
        self.schema = schema
        self.shards = shards
        self.restarts = restarts
        """True: the transaction is our own, and an operation may raise `Restart`."""
        self.resends = resends
        """True: an earlier try may have stored the same rows."""
        self.notifies = notifies
        """True: a commit wakes the workers that wait for it."""
        self.distributed = distributed
        """True on Citus: a plain INSERT is sent to one node, and little else is."""
        self.visited: Sequence[int] = range(shards)
        """The shards that an operation over all of them visits."""
        self._texts = _texts(dialect, schema)
        on_postgres = dialect == "postgres"
        self.reads_shards_at_once: bool = on_postgres and not distributed
        """Citus rejects a join with a list of shards, and SQLite has no LATERAL."""
        self.takes_by_priority: bool = not on_postgres
        """SQLite has no LATERAL: a take reads the priorities first."""
        self.inserts_row_by_row: bool = not on_postgres
        """SQLite runs a statement per row faster than one over a batch of JSON."""
        self.stores_without_looking: bool = on_postgres and restarts and not resends
        """True in the first try of our own transaction: the ids are new.

        If they were stored before, the database reports an error, and the transaction is tried
        again with `resends`.
        """
        self.finds_at_once: bool = on_postgres and not resends and not distributed
        """True: one statement inserts a job or finds the holder of its key.

        After a lost response the job itself is to be found, even if it holds its key no more.
        """
        self.has_advisory_locks: bool = on_postgres
        """PostgreSQL can tell at once that an open transaction has a key; SQLite has one writer."""
        self.splits_statements: bool = on_postgres and shards > 1
        """True: this may be Citus, which runs the parts of one statement one after the other."""
        self.skips_locked: bool = on_postgres
        """PostgreSQL can skip rows that other transactions have locked."""

    def __call__(
        self,
        name: str,
        columns: tuple[str, ...] = (),
        rows: Sequence[tuple[Any, ...]] = (),
        *,
        common: frozenset[str] = frozenset(),
        each: bool = False,
        alone: bool = False,
        waits: bool = True,
        **parameters: Any,
    ) -> Statement:
        """The statement of that name with its values; the flags are those of `Statement`."""
        text = self._texts[name]
        return Statement(name, text, parameters, columns, rows, common, each, alone, waits)

    def only(self, shards: Iterable[int]) -> Sql:
        """The same statements for an operation that visits only these shards."""
        other = copy(self)
        other.visited = tuple(shards)
        return other

    @property
    def visits_one(self) -> bool:
        """True if an operation visits one shard: one statement may be the whole transaction."""
        return len(self.visited) == 1

    def notify(self, queues: Iterable[str]) -> dict[str, Any]:
        """The parameter that wakes the workers of these queues; on SQLite workers poll."""
        if self.dialect == "sqlite":
            return {}
        return {"notify": sorted(set(queues)) if self.notifies else []}

    def notify_one(self) -> dict[str, Any]:
        """The same for a statement of one job; on Citus another statement does it."""
        return {} if self.inserts_row_by_row or self.distributed else {"notifies": self.notifies}

    @property
    def names(self) -> list[str]:
        """The names of all statements."""
        return sorted(_read(self.dialect))


@lru_cache(maxsize=64)
def _texts(dialect: Dialect, schema: str) -> _Texts:
    return _Texts(dialect, schema)


class _Texts(dict[str, str]):
    """The statements by name; the schema is filled in at the first use."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        super().__init__()
        self._read = _read(dialect)
        self._schema = schema

    def __missing__(self, name: str) -> str:
        text = self[name] = in_schema(self._read[name], self._schema)
        return text


@cache
def _read(dialect: Dialect) -> dict[str, str]:
    folder = files("onefold.sql").joinpath(dialect)
    return {
        entry.name.removesuffix(".sql"): _without_comments(entry.read_text())
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }


def _without_comments(text: str) -> str:
    """Without comments and indentation.

    A driver parses the whole text every time; psycopg keeps the result for a short text.
    """
    lines = [line.lstrip(" ") for line in text.splitlines(keepends=True)]
    return "".join(line for line in lines if not line.startswith("--"))


def in_schema(text: str, schema: str) -> str:
    """The text with another schema name; the files have `onefold`, so that they run as they are."""
    if schema == "onefold":
        return text
    name = quoted(schema)
    text = re.sub(r"(?<![\w.'])onefold\.", lambda _: f"{name}.", text)
    text = text.replace("schema if not exists onefold;", f"schema if not exists {name};")
    return text.replace("'onefold.", "'" + name.replace("'", "''") + ".")


def quoted(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@cache
def ordinal(text: str, columns: tuple[str, ...]) -> str:
    """The text with its parameters as positions of columns (`?1`), and `:now` after the last.

    A row can then be passed as the parameters.
    """
    places = {name: place for place, name in enumerate((*columns, "now"), start=1)}
    return _TOKEN.sub(
        lambda match: f"?{places[match['name']]}" if match["name"] else match.group(), text
    )


@cache
def compiled(text: str, style: Style) -> tuple[str, tuple[str, ...]]:
    """The text in a driver's style, and the names of its parameters in order of appearance."""
    names: list[str] = []

    def rewrite(match: re.Match[str]) -> str:
        token, name = match.group(), match.group("name")
        if name is None:
            return token.replace("%", "%%") if style == "pyformat" else token
        if name not in names:
            names.append(name)
        if style == "numbered":
            return f"${names.index(name) + 1}"
        return f"%({name})s" if style == "pyformat" else token

    return _TOKEN.sub(rewrite, text), tuple(names)


Command = TypeVar("Command")
Result = TypeVar("Result")


def run(generator: Generator[Command, Result, T], execute: Callable[[Command], Result]) -> T:
    """Drive a generator: `execute` every command that it yields, and send the result back."""
    try:
        command = next(generator)
        while True:
            try:
                result = execute(command)
            except Exception as error:  # noqa: BLE001 - the generator handles it or raises it
                command = generator.throw(error)
            else:
                command = generator.send(result)
    except StopIteration as finished:
        value: T = finished.value
        return value
    finally:
        generator.close()


async def run_async(
    generator: Generator[Command, Result, T], execute: Callable[[Command], Awaitable[Result]]
) -> T:
    """`run` with an `execute` that is awaited."""
    try:
        command = next(generator)
        while True:
            try:
                result = await execute(command)
            except Exception as error:  # noqa: BLE001 - the generator handles it or raises it
                command = generator.throw(error)
            else:
                command = generator.send(result)
    except StopIteration as finished:
        value: T = finished.value
        return value
    finally:
        generator.close()


class _Begun(Generic[T]):
    """An operation that waits for the rows of a statement, or has ended with a result."""

    def __init__(self, operation: Operation[T]) -> None:
        self._operation = operation
        self.statement: Statement | None = next(operation)
        self.result: T

    def receive(self, rows: Rows) -> None:
        """Go on with the rows."""
        try:
            self.statement = self._operation.send(rows)
        except StopIteration as finished:
            self.statement, self.result = None, finished.value


def overlapped(operations: Sequence[Callable[[], Operation[T]]]) -> Operation[list[T]]:
    """Run operations; each begins while the database runs the first statement of the one before.

    Their first statements must follow each other in lock order. A later statement that locks may
    meet a deadlock, which restarts the transaction. An operation goes on with its rows while the
    database runs the first statements of the later ones.
    """
    begun: list[_Begun[T]] = []
    for build in operations:
        each = _Begun(build())
        begun.append(each)
        assert each.statement is not None
        if len(begun) < len(operations):
            yield replace(each.statement, alone=False, ahead=each.receive)
        else:
            each.receive((yield replace(each.statement, alone=False)))
    for each in begun:
        while each.statement is not None:
            each.receive((yield each.statement))
    return [each.result for each in begun]


def by_shard(sql: Sql, items: Iterable[T], id_of: Callable[[T], str]) -> list[tuple[int, list[T]]]:
    """Group by shard, in shard order, each group sorted by id."""
    if sql.shards == 1:
        only = sorted(items, key=id_of)
        return [(0, only)] if only else []
    groups: dict[int, list[T]] = {}
    for item in items:
        groups.setdefault(shard_of(id_of(item), sql.shards), []).append(item)
    return [(shard, sorted(groups[shard], key=id_of)) for shard in sorted(groups)]


def ids_by_shard(sql: Sql, ids: Iterable[str]) -> list[tuple[int, list[tuple[int, str]]]]:
    """The rows of each shard, as parameters of a statement that takes (shard, id)."""
    return [
        (shard, [(shard, job_id) for job_id in group])
        for shard, group in by_shard(sql, set(ids), str)
    ]


def in_all_shards(sql: Sql, name: str, **parameters: Any) -> Operation[list[Row]]:
    """The rows of a statement, run on each shard."""
    found: list[Row] = []
    for shard in sql.visited:
        found += yield sql(name, shard=shard, **parameters)
    return found


def read_all_shards(sql: Sql, name: str, **parameters: Any) -> Operation[list[Row]]:
    """The rows of a statement that reads, of all shards: in one statement if possible."""
    if sql.visits_one or not sql.reads_shards_at_once:
        return (yield from in_all_shards(sql, name, **parameters))
    statement = sql(name, shards=list(sql.visited), **parameters)
    rows = yield replace(statement, text=_of_all_shards(statement.text))
    return list(rows)


@cache
def _of_all_shards(text: str) -> str:
    one = text.replace(":shard::smallint", "place.shard")
    places = "unnest(:shards::smallint[]) as place (shard)"
    return f"select one.* from {places} cross join lateral (\n{one}\n) as one"  # noqa: S608 - ours


def shard_runs(rows: Iterable[RowT]) -> list[list[RowT]]:
    """Rows that begin with their shard: sorted, and one list per shard."""
    return [list(run) for _, run in groupby(sorted(rows), key=itemgetter(0))]
