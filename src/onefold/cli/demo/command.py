"""The command itself: the promises of Onefold, kept before your eyes by real processes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from onefold.cli.demo.stage import Stage
from onefold.cli.demo.story import tell


def demo(
    database: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Use this SQLite file, and keep it. Without it: a temporary one.",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(metavar="N", min=2, max=32, help="How many deliver the webhook at once."),
    ] = 6,
) -> None:
    """Watch real processes race, be killed and be frozen."""
    stage = Stage()
    if database is not None:
        tell(stage, database, processes=processes)
        stage.end(f"The file is yours to look at: {database}")
        return
    with TemporaryDirectory(prefix="onefold-demo-") as folder:
        tell(stage, Path(folder) / "demo.db", processes=processes)
    stage.end("The file is gone; keep it with: onefold demo --database demo.db")
