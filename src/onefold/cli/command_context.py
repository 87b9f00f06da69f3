"""The desk of an operator: a database, a tenant, and the way in which answers are wanted.

`@at_desk` opens it for a command and gives the command the options that every one of them has:
`--database`, `--schema` or `--app`, `--tenant`, `--json`. Without `--database` and `--app`, it is
the database that `onefold serve` and `onefold worker` would use.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from onefold import ConflictingOptions, Onefold, UsageError
from onefold.cli.app_loader import load_app
from onefold.cli.config import DATABASE, configured
from onefold.cli.parsers import Expand, expanded
from onefold.cli.render import json_text
from onefold.databases.sqlite.database import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold import Tenant

# All but tabs and new lines.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

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
        help="The application's Onefold object, instead of --database.",
    ),
]
TenantOption: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="Whose jobs and schedules.  [nobody's in particular]")
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Answer with JSON, for programs.")
]


class ListsByDefault(TyperGroup):
    """A group whose name alone means its `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command there that was left out."""
        begins_with_option = bool(args) and args[0].startswith("-") and args[0] != "--help"
        parsed: list[str] = super().parse_args(
            ctx, ["list", *args] if not args or begins_with_option else args
        )
        return parsed


WIDEST = 100_000
"""Columns of a terminal that is none: what reads a pipe must not get its lines folded."""


class CliContext:
    """What a command works with, and what it answers through."""

    def __init__(self, onefold: Onefold, tenant: str, *, as_json: bool) -> None:
        """`tenant` is "" where nobody in particular owns the keys."""
        self.onefold: Onefold = onefold
        self.tenant: str = tenant
        self.calls: Tenant = onefold.tenant(tenant) if tenant else onefold
        self.as_json: bool = as_json

    def answer(self, value: object, sentence: str) -> None:
        """Say what was done: the value for programs, the sentence for people."""
        if self.as_json:
            _print_json(value)
        else:
            typer.echo(_harmless(sentence))

    def answer_table(
        self, value: object, columns: Sequence[str], rows: Sequence[Sequence[object]], *, none: str
    ) -> None:
        """Show rows, or say that there are none."""
        if self.as_json:
            _print_json(value)
        elif rows:
            print_table(columns, rows)
        else:
            typer.echo(none)


def _print_json(value: object) -> None:
    typer.echo(json_text(value, indent=2))


def _harmless(text: str) -> str:
    """Without what a terminal obeys: keys are often somebody else's words."""
    return _CONTROLS.sub(lambda found: repr(found.group())[1:-1], text)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns side by side; a cell shows None as nothing."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=not sys.stdout.isatty())
    for row in rows:
        # As text: what users have stored must not be read as markup.
        table.add_row(*(Text("" if cell is None else _harmless(str(cell))) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDEST).print(table)


def _at_desk(*, makes: bool) -> Expand:
    def open_desk(
        *,
        context: typer.Context,
        database: DatabaseOption = None,
        schema: SchemaOption = "onefold",
        app: AppOption = None,
        tenant: TenantOption = "",
        as_json: JsonOption = False,
    ) -> CliContext:
        """A desk that is closed when the command has ended."""
        onefold = context.with_resource(chosen(context, database, schema, app).open())
        if not makes:
            _refuse_absent(onefold)
        return CliContext(onefold, tenant, as_json=as_json)

    return expanded("desk", open_desk)


at_desk: Expand = _at_desk(makes=False)
"""Gives a command its desk, and the options that say where it is."""
at_new_desk: Expand = _at_desk(makes=True)
"""The same, for a command with which a new database may begin."""


class Chosen(NamedTuple):
    """Where the tables are: an application's database, or one by its URL."""

    app: str | None
    database: str
    schema: str

    def open(self, *, shards: int | None = None) -> Onefold:
        """Nothing is connected yet."""
        if self.app is not None:
            return load_app(self.app)
        return Onefold(self.database, schema=self.schema, shards=shards)


def chosen(context: typer.Context, database: str | None, schema: str, app: str | None) -> Chosen:
    """What was said, or else what `onefold serve` and `onefold worker` would use."""
    if database is None and app is None:
        database, app = configured("serve", "database"), configured("worker", "app")
    if database is not None and _is_beaten(context):
        app = None
    if _source(context, "schema") == "DEFAULT":
        schema = configured("serve", "schema") or schema
    return Chosen(app, database or DATABASE, schema)


def _refuse_absent(onefold: Onefold) -> None:
    """A look at a database that is not there must not make it."""
    database = onefold.context.database
    if isinstance(database, SqliteDatabase) and not database.path.exists():
        raise UsageError(
            f"There is no database {database.label}. `onefold migrate` makes it. To use another,"
            " say --database URL or ONEFOLD_DATABASE, or name an application that has one: --app"
            " MODULE:APP or ONEFOLD_APP."
        )


def _is_beaten(context: typer.Context) -> bool:
    """Whether the database decides, and not the app: what was said here beats the environment."""
    said = {name: _source(context, name) == "COMMANDLINE" for name in ("database", "app")}
    if all(said.values()):
        raise ConflictingOptions("app", "and --database exclude each other: say one of them")
    return said["database"] or not said["app"]


def _source(context: typer.Context, name: str) -> str | None:
    source = context.get_parameter_source(name)
    return None if source is None else source.name
