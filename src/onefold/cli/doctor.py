"""`onefold doctor`: examine the database, and say what to fix."""

from __future__ import annotations

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from onefold.app.doctor import findings
from onefold.cli import ExitCode
from onefold.cli.command_context import CliContext, width, with_context
from onefold.model.statistics import counted

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@with_context
def doctor(cli: CliContext) -> None:
    """Examine the database, its schema, clock and settings, and say what to fix.

    Each line is ok, a warning or a problem. It exits with 1 if there is a problem.
    """
    found = list(findings(cli.onefold.context))
    problems = sum(finding.level == "problem" for finding in found)
    warnings = sum(finding.level == "warning" for finding in found)
    if cli.as_json:
        value = {"findings": [msgspec.structs.asdict(one) for one in found], "problems": problems}
        cli.answer(value, "")
    else:
        console = Console(width=width(), highlight=False)
        for finding in found:
            fix = "" if finding.fix is None else f" {finding.fix}"
            line = Text(f"{finding.level:<8}", style=STYLES[finding.level])
            console.print(
                line.append(f"{finding.check:<13}{finding.message}{fix}", style="default")
            )
        typer.echo(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
    raise typer.Exit(ExitCode.FAILURE if problems else ExitCode.SUCCESS)
