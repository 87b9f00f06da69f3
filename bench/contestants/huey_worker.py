"""Huey's consumer on SQLite, with threads: WAL, and a sync at every commit, as Onefold has it."""

from __future__ import annotations

from importlib import import_module
from threading import Lock
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from bench import sqlite_stage
from bench.payloads import payloads

if TYPE_CHECKING:
    from bench.tally import Counter
    from bench.values import Order, Shift


def load(order: Order, count: int) -> str:
    """A new file with tasks; only those who handle them wait for the disk."""
    sqlite_stage.new_file(order.url)
    _, send = _huey(order.url, None, fsync=False)
    for content in payloads(count):
        send(**content)
    return order.url


def rest(_url: str) -> str:
    """How many jobs are not finished."""
    return "select count(*) from task"


def work(shift: Shift, counter: Counter) -> None:
    """Run a consumer without end."""
    huey, _ = _huey(shift.url, counter, fsync=True)
    huey.create_consumer(workers=int(shift.options["threads"]), periodic=False).run()


def _huey(url: str, counter: Counter | None, *, fsync: bool) -> tuple[Any, Any]:
    # Peers live in an environment of their own, where no type checker looks.
    library: Any = import_module("huey")
    path = str(sqlite_stage.path_of(url))
    huey = library.SqliteHuey(filename=path, fsync=fsync, timeout=60, results=False)
    lock = Lock()

    def send(user: int, template: str, note: str) -> None:
        del template, note
        if counter is not None:
            # Threads share the process's place in the tally.
            with lock:
                counter.count(monotonic_ns() - user)

    return huey, huey.task()(send)
