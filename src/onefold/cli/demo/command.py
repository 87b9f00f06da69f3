"""`onefold demo`: shows the guarantees of Onefold with real processes.

Every fact is checked before it is printed.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from onefold.cli.demo.processes import PromiseBroken
from onefold.cli.demo.story import run_demo


class DemoOutput:
    """Prints chapters and facts; in colour on a terminal, as plain text elsewhere."""

    def __init__(self) -> None:
        """Print on standard output."""
        self._console = Console(highlight=False, soft_wrap=True, emoji=False)
        self._chapters = 0
        self._facts = 0

    def open(self, sentence: str) -> None:
        """The first lines."""
        self._console.print(sentence, markup=False, style="bold")

    def chapter(self, title: str) -> None:
        """A numbered headline."""
        self._chapters += 1
        self._console.print()
        self._console.print(f"{self._chapters}. {title}", markup=False, style="bold cyan")

    def say(self, sentence: str) -> None:
        """A line about what happens."""
        self._console.print(f"   {sentence}", markup=False)

    def detail(self, line: str) -> None:
        """A line of evidence."""
        self._console.print(f"     {line}", markup=False, style="dim")

    def fact(self, sentence: str, *, holds: bool) -> None:
        """A fact; raises `PromiseBroken` if it does not hold."""
        if not holds:
            raise PromiseBroken(sentence)
        self._facts += 1
        self._console.print(f"   [green]ok[/green]  {sentence}")

    def end(self, sentence: str) -> None:
        """The last lines."""
        self._console.print()
        self._console.print(f"All {self._facts} facts were checked.", markup=False, style="bold")
        self._console.print(sentence, markup=False)


def demo(
    database: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Use this SQLite file and keep it.  [a temporary file]",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            metavar="N", min=2, max=32, help="Processes that deliver the webhook at once."
        ),
    ] = 6,
) -> None:
    """Show the guarantees: real processes race, are killed and are frozen."""
    output = DemoOutput()
    if database is not None:
        run_demo(output, database, processes=processes)
        output.end(f"The database is kept: {database}")
        return
    with TemporaryDirectory(prefix="onefold-demo-") as folder:
        run_demo(output, Path(folder) / "demo.db", processes=processes)
    output.end("The database was deleted. To keep it: onefold demo --database demo.db")
