"""The desk of an operator: a database, a tenant, and the way in which answers are wanted.

`@at_desk` opens it for a command and gives the command the options that every one of them has:
`--database`, `--schema` or `--app`, `--tenant`, `--json`.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onefold import ConflictingOptions, Onefold, UsageError
from onefold.cli.describing import json_text
from onefold.cli.expanding import Expand, expanded
from onefold.cli.loading import load_app

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

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
    str, typer.Option(metavar="NAME", help="The schema of the tables on PostgreSQL.")
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

WIDEST = 100_000
"""Columns of a terminal that is none: what reads a pipe must not get its lines folded."""


class Desk:
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


def open_desk(
    *,
    context: typer.Context,
    database: DatabaseOption = None,
    schema: SchemaOption = "onefold",
    app: AppOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> Desk:
    """A desk that is closed when the command has ended."""
    onefold = context.with_resource(_opened(context, database, schema, app))
    return Desk(onefold, tenant, as_json=as_json)


at_desk: Expand = expanded("desk", open_desk)
"""Gives a command its desk, and the options that say where it is."""


@contextmanager
def _opened(
    context: typer.Context, database: str | None, schema: str, app: str | None
) -> Generator[Onefold]:
    if app is not None and not _is_beaten(context, database):
        with load_app(app) as onefold:
            yield onefold
        return
    if database is None:
        raise UsageError(
            "Say which database: --database URL or ONEFOLD_DATABASE, or an application that has"
            " one: --app MODULE:APP or ONEFOLD_APP."
        )
    with Onefold(database, schema=schema) as onefold:
        yield onefold


def _is_beaten(context: typer.Context, database: str | None) -> bool:
    """Whether the database decides, and not the app: what was said here beats the environment."""
    if database is None:
        return False
    said = {name: _is_said_here(context, name) for name in ("database", "app")}
    if all(said.values()):
        raise ConflictingOptions("app", "and --database exclude each other: say one of them")
    return said["database"] or not said["app"]


def _is_said_here(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
