"""Procrastinate on its psycopg connector, as its own documentation sets it up."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bench import stage
from bench.contestants.crowd import acrowd, crowd_size
from bench.payloads import KIND, batches, payloads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.stopwatch import Stopwatch
    from bench.values import Order

# Peers live in an environment of their own, where no type checker looks.
procrastinate: Any = import_module("procrastinate")

WARM: Final = 10
STORED: Final = "select count(*) from procrastinate_jobs"


def bulk(order: Order, watch: Stopwatch) -> None:
    """`batch_defer_async`, so many jobs a call."""

    async def run(task: Any) -> None:
        contents = payloads(order.jobs)
        for _ in range(WARM):
            await task.batch_defer_async(*payloads(10))
        with watch.running(order.jobs):
            for batch in batches(contents, order.number("batch")):
                await task.batch_defer_async(*batch)

    _play(order, run, stored=WARM * 10 + order.jobs, pool=1)


def asingle(order: Order, watch: Stopwatch) -> None:
    """`defer_async`, one after the other."""

    async def run(task: Any) -> None:
        contents = payloads(order.jobs)
        for content in payloads(WARM):
            await task.defer_async(**content)
        with watch.running(order.jobs):
            for content in contents:
                await task.defer_async(**content)

    _play(order, run, stored=WARM + order.jobs, pool=1)


def single(order: Order, watch: Stopwatch) -> None:
    """`defer`, one after the other, by its sync connector."""
    url = stage.new_database(order.url, "bench_procrastinate")
    app = procrastinate.App(
        connector=procrastinate.SyncPsycopgConnector(conninfo=url, min_size=1, max_size=1)
    )
    task = app.task(name=KIND)(_send)
    contents = payloads(order.jobs)
    with app.open():
        app.schema_manager.apply_schema()
        stage.settle(url)
        for content in payloads(WARM):
            task.defer(**content)
        with watch.running(order.jobs):
            for content in contents:
                task.defer(**content)
    stage.expect(url, STORED, WARM + order.jobs)


def tasks(order: Order, watch: Stopwatch) -> None:
    """`defer_async` by many tasks at once, over its pool."""

    async def run(task: Any) -> None:
        async def enqueue(content: dict[str, Any]) -> None:
            await task.defer_async(**content)

        await acrowd(order, watch, enqueue)

    _play(order, run, stored=crowd_size(order), pool=order.number("pool"))


def _send(user: int, template: str, note: str) -> None:
    """The task; it does not run here."""


def _play(order: Order, run: Callable[[Any], Awaitable[None]], *, stored: int, pool: int) -> None:
    async def play(url: str) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=url, min_size=pool, max_size=pool)
        app = procrastinate.App(connector=connector)
        task = app.task(name=KIND)(_send)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            stage.settle(url)
            await run(task)

    url = stage.new_database(order.url, "bench_procrastinate")
    asyncio.run(play(url))
    stage.expect(url, STORED, stored)
