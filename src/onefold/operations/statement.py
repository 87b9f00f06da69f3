"""A statement: SQL text with `:name` parameters, and what goes into them.

`Sql` knows the statements of one database by the names of their files. How a parameter is written
(`:name`, `%(name)s`, `$1`) is the business of the driver: `compiled` rewrites the text once.

`run` and `run_async`: the only two functions that know sync from async.

What goes wrong while a generator's wish is carried out is raised where it asked. A procedure may
have an answer to it; an operation never has, for a failed statement has killed its transaction.

Rows grouped by the shard that their ids name, in the one order in which rows are locked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import dropwhile
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from onefold.model.ids import shard_of

if TYPE_CHECKING:
    from collections.abc import Awaitable


T = TypeVar("T")

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
    """The parameters that come from `rows`, one value per row."""
    rows: Sequence[tuple[Any, ...]] = ()
    common: frozenset[str] = frozenset()
    """Columns, never null, that PostgreSQL is given once where all rows have the same."""
    each: bool = False
    """True where it is run once for every row, and not once for all: the answer has the first value
    of every row that changed something. PostgreSQL is only asked for one row that way."""
    alone: bool = False
    """True where it may be committed by itself, whatever it answers: it has done all there is to do
    then, or nothing at all."""
    waits: bool = True
    """True where it may wait for a lock, and must know for how long."""
    ahead: tuple[Statement, ...] = ()
    """What will be asked next whatever this answers: it may be sent along, in one round trip."""

    def but(self, *, alone: bool, waits: bool) -> Statement:
        """The same, with what is known of it where it is asked for."""
        return msgspec.structs.replace(self, alone=alone, waits=waits)

    def followed_by(self, ahead: tuple[Statement, ...]) -> Statement:
        """The same, with what will be asked next."""
        return msgspec.structs.replace(self, ahead=ahead)

    @property
    def travels(self) -> bool:
        """True where it may be sent together with others, outside of any transaction block."""
        return self.alone and not self.waits

    def arrays(self) -> dict[str, Any]:
        """The parameters with a batch as one list per column, for PostgreSQL's unnest."""
        return self._by_column(list)

    def literals(self) -> dict[str, Any]:
        """`arrays` in PostgreSQL's spelling: psycopg takes three times as long to spell a list."""
        return self._by_column(array_literal)

    def _by_column(self, spelled: Callable[[tuple[Any, ...]], Any]) -> dict[str, Any]:
        columns: dict[str, Any] = {
            name: spelled(tuple(value)) if value.__class__ is list else value
            for name, value in self.parameters.items()
        }
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
            columns[name] = spelled(column[:1] if once else column)
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
    """An array as PostgreSQL writes it, by few passes over the whole text.

    A column of nulls is written as an empty array: `unnest` fills up with nulls what is shorter
    than its neighbours.
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
    # NUL parts the elements while quotes are escaped: no text that PostgreSQL can hold has one.
    joined = "\0".join(values)
    if joined.count("\0") != len(values) - 1:
        return list(values)
    return '{"' + _escaped(joined).replace("\0", '","') + '"}'


def _element(value: str | None) -> str:
    return "NULL" if value is None else f'"{_escaped(value)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Sql:
    """The statements of one database, under one schema name, for so many shards."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        schema: str = "onefold",
        shards: int = 1,
        restarts: bool = False,
        resends: bool = False,
        notifies: bool = True,
    ) -> None:
        """`schema` is PostgreSQL's; SQLite's tables carry a prefix instead."""
        self.dialect: Dialect = dialect
        self.schema = schema
        self.shards = shards
        self.restarts = restarts
        """True where the transaction is our own, and an operation may ask to begin it anew."""
        self.resends = resends
        """True where what is asked for may have been stored by an earlier try."""
        self.notifies = notifies
        """True where workers are woken at the commit of what they wait for."""
        self._texts = _texts(dialect, schema)

    def __call__(
        self,
        name: str,
        columns: tuple[str, ...] = (),
        rows: Sequence[tuple[Any, ...]] = (),
        **parameters: Any,
    ) -> Statement:
        """The statement of that name with its values."""
        return Statement(name, self._texts[name], parameters, columns, rows)

    def with_common(
        self,
        name: str,
        columns: tuple[str, ...],
        rows: Sequence[tuple[Any, ...]],
        common: frozenset[str],
        **parameters: Any,
    ) -> Statement:
        """The statement of that name, whose rows have much in common."""
        return Statement(name, self._texts[name], parameters, columns, rows, common=common)

    def each(
        self,
        name: str,
        columns: tuple[str, ...],
        rows: Sequence[tuple[Any, ...]],
        **parameters: Any,
    ) -> Statement:
        """The statement of that name, run once for every row."""
        return Statement(name, self._texts[name], parameters, columns, rows, each=True)

    def with_shards(self, shards: int) -> Sql:
        """The same statements for another number of shards."""
        return Sql(
            self.dialect,
            schema=self.schema,
            shards=shards,
            restarts=self.restarts,
            notifies=self.notifies,
        )

    def restarting(self, *, resends: bool = False) -> Sql:
        """The same statements for transactions that can be begun anew."""
        return Sql(
            self.dialect,
            schema=self.schema,
            shards=self.shards,
            restarts=True,
            resends=resends,
            notifies=self.notifies,
        )

    def rings(self, queues: Iterable[str]) -> dict[str, list[str]]:
        """The parameter that wakes the workers of these queues; SQLite's look for themselves."""
        if self.dialect == "sqlite":
            return {}
        return {"rings": sorted(set(queues)) if self.notifies else []}

    @property
    def names(self) -> list[str]:
        """All statements there are, for those who check them."""
        return sorted(_read(self.dialect))

    @property
    def takes_by_priority(self) -> bool:
        """SQLite has no LATERAL: a take there asks for the priorities first."""
        return self.dialect == "sqlite"

    @property
    def runs_each(self) -> bool:
        """SQLite runs a statement per row faster than one over a batch of JSON."""
        return self.dialect == "sqlite"

    @property
    def stores_without_looking(self) -> bool:
        """True on PostgreSQL in a first try of our own: new ids meet nobody.

        Were they stored before, the database would refuse them aloud, and the transaction would be
        tried again as one that resends.
        """
        return self.dialect == "postgres" and self.restarts and not self.resends

    @property
    def has_advisory_locks(self) -> bool:
        """PostgreSQL can say at once that an open transaction has a key; SQLite has one writer."""
        return self.dialect == "postgres"

    @property
    def skips_locked(self) -> bool:
        """PostgreSQL can pass over rows that others have locked."""
        return self.dialect == "postgres"


@lru_cache(maxsize=64)
def _texts(dialect: Dialect, schema: str) -> _Texts:
    return _Texts(dialect, schema)


class _Texts(dict[str, str]):
    """The statements by name, each put into its schema when it is first asked for."""

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
        entry.name.removesuffix(".sql"): _without_comment(entry.read_text())
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }


def _without_comment(text: str) -> str:
    """Without the words before it: a driver parses a long text anew every time."""
    lines = text.splitlines(keepends=True)
    return "".join(dropwhile(lambda line: line.startswith("--"), lines))


def in_schema(text: str, schema: str) -> str:
    """The text with another schema's name; the files say `onefold`, so that they can be pasted."""
    if schema == "onefold":
        return text
    name = quoted(schema)
    text = re.sub(r"(?<![\w.'])onefold\.", lambda _: f"{name}.", text)
    text = text.replace("schema if not exists onefold;", f"schema if not exists {name};")
    return text.replace("'onefold.", "'" + name.replace("'", "''") + ".")


def quoted(name: str) -> str:
    """A name as SQL writes one that might be a keyword."""
    return '"' + name.replace('"', '""') + '"'


@cache
def ordinal(text: str, columns: tuple[str, ...]) -> str:
    """The text with a parameter written as the place of its column (`?1`), `:now` after the last.

    A row is then the parameters as it stands.
    """
    places = {name: place for place, name in enumerate((*columns, "now"), start=1)}
    return _TOKEN.sub(
        lambda match: f"?{places[match['name']]}" if match["name"] else match.group(), text
    )


@cache
def compiled(text: str, style: Style) -> tuple[str, tuple[str, ...]]:
    """The text in a driver's own style, and the names of its parameters in order of appearance."""
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


Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


def run(operation: Generator[Asked, Answered, T], execute: Callable[[Asked], Answered]) -> T:
    """Drive a generator with a function that does what it asks for: run one statement."""
    try:
        asked = next(operation)
        while True:
            try:
                answered = execute(asked)
            except Exception as error:  # noqa: BLE001 - the generator's to answer or pass on
                asked = operation.throw(error)
            else:
                asked = operation.send(answered)
    except StopIteration as finished:
        value: T = finished.value
        return value
    finally:
        operation.close()


async def run_async(
    operation: Generator[Asked, Answered, T], execute: Callable[[Asked], Awaitable[Answered]]
) -> T:
    """`run`, for a function that must be awaited."""
    try:
        asked = next(operation)
        while True:
            try:
                answered = await execute(asked)
            except Exception as error:  # noqa: BLE001 - the generator's to answer or pass on
                asked = operation.throw(error)
            else:
                asked = operation.send(answered)
    except StopIteration as finished:
        value: T = finished.value
        return value
    finally:
        operation.close()


def by_shard(sql: Sql, items: Iterable[T], id_of: Callable[[T], str]) -> list[tuple[int, list[T]]]:
    """Group by shard, in shard order, each group sorted by id."""
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
