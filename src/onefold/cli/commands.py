"""All commands, and the options that come before a command."""

from __future__ import annotations

from typing import Annotated

import typer

from onefold.cli.demo.command import demo
from onefold.cli.migrate import migrate
from onefold.cli.version import print_version, version

app: typer.Typer = typer.Typer(
    name="onefold",
    help="Manifold requests, onefold effect: jobs and keys that happen once.",
    no_args_is_help=True,
    add_completion=False,
    # Help is plain text: the reference in the docs is compared with it.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(migrate)
app.command()(version)


@app.callback()
def before(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options without a command."""
    del version
