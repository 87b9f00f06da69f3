"""`onefold top`: what `onefold status` shows, live, with keys for an operator."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer

from onefold import InvalidInput, UsageError
from onefold.cli.command_context import CliContext, with_context
from onefold.cli.parsers import duration

LEAST = timedelta(milliseconds=100)


@with_context
def top(
    cli: CliContext,
    *,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often the screen is refreshed.")
    ] = "2s",
) -> None:
    """Show queues, workers and failures live, and pause, replay, inspect and search them.

    Keys: Tab moves between the tables, p pauses or resumes a queue, r replays a job or the dead
    letters of a queue, i or Enter inspects, / searches, q quits.
    """
    try:
        from onefold.cli.top_screen import Top
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise UsageError("onefold top needs the extra top: pip install 'onefold[top]'") from error
    interval = duration(every, "every")
    if interval < LEAST:
        raise InvalidInput("every", f"must be at least 100ms, got {every!r}")
    screen = Top(cli.onefold, cli.calls, interval)
    screen.read()  # an error now is a message, not a screen
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("onefold top needs a terminal. For scripts: onefold status --json")
    screen.run()
