"""Onefold's worker, on PostgreSQL or SQLite as the URL says."""

from __future__ import annotations

from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from bench import sqlite_stage, stage
from bench.payloads import KIND
from onefold import Onefold

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from bench.tally import Counter
    from bench.values import Order, Shift


def load(order: Order, count: int) -> str:
    """Tables and jobs, beside those that the order wants there."""
    if order.url.startswith("sqlite:"):
        sqlite_stage.load(order.url, count)
        return order.url
    return stage.loaded_database(order, count)


def rest(url: str) -> str:
    """How many jobs are not finished; each half is answered by an index."""
    table = "onefold_job" if url.startswith("sqlite:") else "onefold.job"
    waiting = f"select count(*) from {table} where state = 0 and group_key is null"
    return f"select ({waiting}) + (select count(*) from {table} where state = 1)"


def work(shift: Shift, counter: Counter) -> None:
    """Run a worker without end."""
    onefold = Onefold(shift.url)

    @onefold.job(kind=KIND)
    async def send(user: int, template: str, note: str) -> None:
        del template, note
        counter.count(monotonic_ns() - user)

    onefold.run_worker(queues=["default"], concurrency=int(shift.options["concurrency"]))


@asynccontextmanager
async def sender(url: str) -> AsyncGenerator[Callable[[dict[str, Any]], Awaitable[object]]]:
    """`aenqueue`, one job at a time."""
    async with Onefold(url) as onefold:
        yield lambda content: onefold.aenqueue(KIND, content)
