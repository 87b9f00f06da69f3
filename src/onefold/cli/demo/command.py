"""`onefold demo`: a shop in a world that repeats itself, with Onefold and without it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import reduce
from operator import add
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onefold.cli import ExitCode
from onefold.errors import OnefoldError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onefold.cli.demo.world import Effects, Surface, World

REFRESH = 0.25


class PromiseBroken(OnefoldError):
    """The shop with Onefold has lost or doubled something."""

    def __init__(self, lost: int, doubled: int) -> None:
        super().__init__(
            f"With Onefold, {lost} purchases were lost and {doubled} effects doubled. This must not"
            " happen: please report it.",
            lost=lost,
            doubled=doubled,
        )


def demo(
    count: Annotated[int, typer.Option(metavar="N", min=8, max=100_000, help="Purchases.")] = 1000,
) -> None:
    """Show the point: duplicate requests and killed workers, with Onefold and without.

    A shop has an API, a form, a webhook and a job. Every purchase is requested about five times,
    some clients hang up, and workers are killed. On a terminal, the dashboard stays open until
    Ctrl-C.
    """
    with TemporaryDirectory(prefix="onefold-demo-") as folder:
        os.environ["ONEFOLD_DEMO"] = folder
        os.environ["ONEFOLD_DEMO_PARENT"] = str(os.getpid())
        try:
            from onefold.cli.demo import shop
            from onefold.cli.demo.world import World
        except ImportError as error:
            raise UsageError(
                f"The demo needs the extra server ({error.name} is not installed):"
                " pip install 'onefold[server]'"
            ) from error
        shop.create_tables()
        world = World(_free_port(), count)
        try:
            total = asyncio.run(_run(world))
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    if total.lost or total.doubled:
        raise PromiseBroken(total.lost, total.doubled)


async def _run(world: World) -> Effects:
    """Run all of it; returns what the shop with Onefold has done."""
    console = Console(highlight=False)
    task = asyncio.current_task()
    assert task is not None, "asyncio.run has made one"
    for number in (signal.SIGTERM, signal.SIGHUP):  # also of a terminal that is closed
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with world.open() as session:
        console.print(f"The dashboard: {world.url}/", style="bold")
        with Live(console=console, auto_refresh=False, transient=True) as live:
            async with world.workers():
                running = asyncio.create_task(world.run(session))
                while not running.done():
                    if console.is_terminal:
                        live.update(_picture(world, missing="open"), refresh=True)
                    await asyncio.wait([running], timeout=REFRESH)
                await running
        console.print(_picture(world, missing="lost"))
        if console.is_terminal and sys.stdin.isatty():
            console.print("The dashboard stays open. Ctrl-C ends the demo.", style="bold")
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return _total(world.tallies(world.with_onefold))


def _total(tallies: dict[Surface, Effects]) -> Effects:
    return reduce(add, tallies.values())


def _picture(world: World, *, missing: str) -> RenderableType:
    """What was requested, and what each shop has made of it; what `missing` purchases are."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    for name in ("requested", "wanted", "with Onefold", "doubled", missing):
        table.add_column(name, justify="right")
    for name in ("without", "doubled", missing):
        table.add_column(name, justify="right", style="dim")
    ours, plain = world.tallies(world.with_onefold), world.tallies(world.without)
    for surface, mine in ours.items():
        asked = (f"{world.requested[surface]:,}", f"{mine.wanted:,}")
        table.add_row(surface, *asked, *_cells(mine), *_cells(plain[surface]))
    requested = world.requested.total()
    return Group(
        table,
        "",
        f"{world.kills} workers were killed.",
        _sentence("With Onefold", requested, _total(ours), missing),
        _sentence("Without", requested, _total(plain), missing),
    )


def _cells(tally: Effects) -> tuple[str, ...]:
    return tuple(f"{number:,}" for number in (tally.done, tally.doubled, tally.lost))


def _sentence(side: str, requested: int, tally: Effects, missing: str) -> Text:
    return Text(
        f"{side + ':':<14}requested {requested:,} times \u00b7 done {tally.done:,} times"
        f" \u00b7 {missing} {tally.lost:,} \u00b7 doubled {tally.doubled:,}",
        style="bold green" if not (tally.lost or tally.doubled) else "bold",
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
