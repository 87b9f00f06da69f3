"""Progress bars of long commands, on a terminal only."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@contextmanager
def shown_progress(label: str) -> Generator[Callable[[int, int | None], None]]:
    """A bar on standard error; the function sets what is done, and the total if it is known."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console, quiet = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*columns, console=console, disable=quiet, transient=True) as progress:
        task = progress.add_task(label, total=None)

        def update(done: int, total: int | None) -> None:
            shown = f"{label} {done}" if total is None else f"{label} {done} of {total}"
            progress.update(task, completed=done, total=total, description=shown)

        yield update
