"""`onefold migrate`: bring the tables of a database up to date, or print the SQL that would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from onefold import ConflictingOptions, InvalidInput
from onefold.cli import ExitCode
from onefold.cli.command_context import AppOption, DatabaseOption, SchemaOption, chosen
from onefold.model import checks
from onefold.model.ids import new_id, shard_count
from onefold.operations.migrations import Identity, pending, script

if TYPE_CHECKING:
    from onefold.operations.statement import Dialect

DIALECTS: dict[str, Dialect] = {
    "sqlite": "sqlite",
    "postgres": "postgres",
    "postgresql": "postgres",
}


def migrate(
    context: typer.Context,
    database: DatabaseOption = None,
    schema: SchemaOption = "onefold",
    app: AppOption = None,
    shards: Annotated[
        int | None,
        typer.Option(metavar="N", help="Shards of a new database; cannot be changed later.  [1]"),
    ] = None,
    *,
    sql: Annotated[
        bool,
        typer.Option("--sql", help="Only print the SQL for a new database, without a connection."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete all of Onefold's tables first. It asks.")
    ] = False,
) -> None:
    """Bring the tables of a database up to date. Safe to repeat."""
    place = chosen(context, database, schema, app)
    if place.app is not None and (sql or shards is not None):
        option = "sql" if sql else "shards"
        raise ConflictingOptions(option, f"needs --database, but {place.app} has its own database")
    if sql:
        if fresh:
            raise ConflictingOptions("fresh", "and --sql exclude each other: use one of them")
        typer.echo(_text(place.database, place.schema, shards), nl=False)
        return
    with place.open(shards=shards) as onefold:
        opened = onefold.context.database
        if fresh and not typer.confirm(f"Delete all jobs, keys and settings in {opened.label}?"):
            typer.echo("Nothing was changed.")
            raise typer.Exit(ExitCode.FAILURE)
        applied = opened.migrate(fresh=fresh)
        for migration in applied:
            typer.echo(f"Applied {migration.number:04} {migration.name}.")
        typer.echo(f"{opened.label} is {'now ' if applied else ''}up to date.")


def _text(url: str, schema: str, shards: int | None) -> str:
    """The whole script in one transaction. Only the kind of database is read from the URL."""
    dialect = DIALECTS.get(url.partition(":")[0])
    if dialect is None:
        raise InvalidInput("url", "must start with sqlite:/// or postgresql://")
    checks.schema(schema, "schema")
    new = Identity(new_id(), shards=1 if shards is None else shard_count(shards))
    text = script(dialect, pending(dialect, 0, schema=schema), new.migrated(dialect), schema=schema)
    return f"begin;\n\n{text}\ncommit;\n"
