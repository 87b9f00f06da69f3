"""`onefold version`."""

from __future__ import annotations

import typer

from onefold import __version__


def version() -> None:
    """Print the version."""
    typer.echo(f"onefold {__version__}")


def print_version(wanted: bool) -> None:  # noqa: FBT001 - called by typer
    """The option `--version`: print it, and do nothing else."""
    if wanted:
        version()
        raise typer.Exit
