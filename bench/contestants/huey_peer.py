"""Huey on SQLite: WAL, and a sync at every commit (`fsync=True`), as Onefold has it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bench import sqlite_stage
from bench.contestants.crowd import crowd, crowd_size
from bench.payloads import payloads

if TYPE_CHECKING:
    from bench.stopwatch import Stopwatch
    from bench.values import Order

WARM: Final = 10
STORED: Final = "select count(*) from task"


def single(order: Order, watch: Stopwatch) -> None:
    """A task is called, one after the other."""
    send = _task(order)
    contents = payloads(order.jobs)
    for content in payloads(WARM):
        send(content)
    with watch.running(order.jobs):
        for content in contents:
            send(content)
    sqlite_stage.expect(order.url, STORED, WARM + order.jobs)


def threads(order: Order, watch: Stopwatch) -> None:
    """A task is called by many threads at once."""
    crowd(order, watch, _task(order))
    sqlite_stage.expect(order.url, STORED, crowd_size(order))


def _task(order: Order) -> Any:
    sqlite_stage.new_file(order.url)
    # Peers live in an environment of their own, where no type checker looks.
    library: Any = import_module("huey")
    # The default of 5 s would let callers fail while 63 others have the lock.
    huey = library.SqliteHuey(
        filename=str(sqlite_stage.path_of(order.url)), fsync=True, timeout=60, results=False
    )
    return huey.task()(_send)


def _send(content: dict[str, Any]) -> None:
    """The task; it does not run here."""
    del content
