"""What the commands of operators share: the database, the tenant and the output format.

`@with_context` passes a `CliContext` to a command as `cli`, and adds the shared options:
`--database`, `--schema`, `--app`, `--tenant` and `--json`. Without `--database` and `--app`,
commands use the database of `onefold serve` and `onefold worker`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from onefold import ConflictingOptions, Onefold, UsageError
from onefold.cli.app_loader import load_app
from onefold.cli.config import DATABASE, configured
from onefold.cli.parsers import Expand, expanded
from onefold.cli.render import escaped, json_text
from onefold.databases.sqlite.database import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold import Tenant

DatabaseOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="ONEFOLD_DATABASE",
        help="sqlite:///app.db or postgresql://user@host/name",
    ),
]
SchemaOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar="ONEFOLD_SERVE_SCHEMA",
        help="The schema of the tables on PostgreSQL.",
    ),
]
AppOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:APP",
        envvar="ONEFOLD_APP",
        help="The Onefold object of an application, instead of --database.",
    ),
]
TenantOption: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="The tenant.  [none]")]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class ListsByDefault(TyperGroup):
    """A group of commands that runs `list` if no command is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` if the command is missing."""
        begins_with_option = bool(args) and args[0].startswith("-") and args[0] != "--help"
        parsed: list[str] = super().parse_args(
            ctx, ["list", *args] if not args or begins_with_option else args
        )
        return parsed


WIDEST = 100_000
"""Columns of the output if it is not a terminal: lines in a pipe must not be wrapped."""


class CliContext:
    """The database and the tenant of a command, and its output."""

    def __init__(self, onefold: Onefold, tenant: str, *, as_json: bool) -> None:
        """`tenant` is "" for no tenant."""
        self.onefold: Onefold = onefold
        self.tenant: str = tenant
        self.calls: Tenant = onefold.tenant(tenant) if tenant else onefold
        self.as_json: bool = as_json

    def answer(self, value: object, sentence: str) -> None:
        """Print the result: the value with `--json`, otherwise the sentence."""
        if self.as_json:
            _print_json(value)
        else:
            typer.echo(escaped(sentence))

    def answer_table(
        self, value: object, columns: Sequence[str], rows: Sequence[Sequence[object]], *, none: str
    ) -> None:
        """Print a table, or the sentence `none` if there are no rows."""
        if self.as_json:
            _print_json(value)
        elif rows:
            print_table(columns, rows)
        else:
            typer.echo(none)


def _print_json(value: object) -> None:
    typer.echo(json_text(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; None is an empty cell."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=not sys.stdout.isatty())
    for row in rows:
        # As text: stored values must not be read as markup.
        table.add_row(*(Text("" if cell is None else escaped(str(cell))) for cell in row))
    Console(width=width()).print(table)


def width() -> int | None:
    """The width of the output; None is that of the terminal."""
    return None if sys.stdout.isatty() else WIDEST


def _with_context(*, creates: bool) -> Expand:
    def open_context(
        *,
        context: typer.Context,
        database: DatabaseOption = None,
        schema: SchemaOption = "onefold",
        app: AppOption = None,
        tenant: TenantOption = "",
        as_json: JsonOption = False,
    ) -> CliContext:
        """Open the database; typer closes it after the command."""
        onefold = context.with_resource(chosen(context, database, schema, app).open())
        if not creates:
            refuse_absent(onefold)
        return CliContext(onefold, tenant, as_json=as_json)

    return expanded("cli", open_context)


with_context: Expand = _with_context(creates=False)
"""Passes the context to a command and adds the shared options."""
with_new_database: Expand = _with_context(creates=True)
"""The same, for a command that may create the database."""


class Chosen(NamedTuple):
    """The database to use: that of an application, or one by its URL."""

    app: str | None
    database: str
    schema: str

    def open(self, *, shards: int | None = None) -> Onefold:
        """The facade; it does not connect yet."""
        if self.app is not None:
            return load_app(self.app)
        return Onefold(self.database, schema=self.schema, shards=shards)


def chosen(context: typer.Context, database: str | None, schema: str, app: str | None) -> Chosen:
    """The database of the options, or else that of `onefold serve` and `onefold worker`."""
    if database is None and app is None:
        database, app = configured("serve", "database"), configured("worker", "app")
    if database is not None and _database_wins(context):
        app = None
    if _source(context, "schema") == "DEFAULT":
        schema = configured("serve", "schema") or schema
    return Chosen(app, database or DATABASE, schema)


def refuse_absent(onefold: Onefold) -> None:
    """A command that only reads must not create the database."""
    database = onefold.context.database
    if isinstance(database, SqliteDatabase) and database.is_absent():
        found = "has no tables of Onefold" if database.path.exists() else "does not exist"
        raise UsageError(
            f"The database {database.label} {found}. `onefold migrate` creates it. To use another"
            " one, set --database URL or ONEFOLD_DATABASE, or the application that has it: --app"
            " MODULE:APP or ONEFOLD_APP."
        )


def _database_wins(context: typer.Context) -> bool:
    """Whether the database overrides the app: options override the environment."""
    given = {name: _source(context, name) == "COMMANDLINE" for name in ("database", "app")}
    if all(given.values()):
        raise ConflictingOptions("app", "and --database exclude each other: use one of them")
    return given["database"] or not given["app"]


def _source(context: typer.Context, name: str) -> str | None:
    source = context.get_parameter_source(name)
    return None if source is None else source.name
