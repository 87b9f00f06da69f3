"""`onefold backup`: copy a SQLite file while it is in use."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - read by typer
from typing import Annotated

import typer

from onefold import UsageError
from onefold.cli.command_context import CliContext, with_context
from onefold.cli.progress import shown_progress
from onefold.databases.sqlite.backup import back_up
from onefold.databases.sqlite.database import SqliteDatabase


@with_context
def backup(
    cli: CliContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy.", dir_okay=False)],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Copy a SQLite database while workers use it, and check the copy.

    The copy is the state at the start of the command. The file appears when it is complete.
    """
    database = cli.onefold.context.database
    if not isinstance(database, SqliteDatabase):
        command = (
            f"pg_dump --format=custom --schema={shlex.quote(database.sql.schema)}"
            f" --file={shlex.quote(str(file))} {shlex.quote(database.label)}"
        )
        raise UsageError(f"This command is for SQLite. For PostgreSQL, run: {command}")
    with shown_progress("Copying") as progress:
        back_up(database, file, force=force, progress=progress)
    size = file.stat().st_size
    cli.answer({"file": str(file), "bytes": size}, f"Copied to {file} ({size} bytes).")
