"""Procrastinate's worker on its psycopg connector, with notifications."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from bench import stage
from bench.contestants.procrastinate_peer import procrastinate
from bench.payloads import KIND, batches, payloads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from bench.tally import Counter
    from bench.values import Order, Shift

BATCH: Final = 1_000


def load(order: Order, count: int) -> str:
    """Its tables as installed, and jobs."""

    async def fill() -> None:
        app, task = _app(url, None)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            for batch in batches(payloads(count), BATCH) if count else ():
                await task.batch_defer_async(*batch)

    url = stage.new_database(order.url, "bench_procrastinate")
    asyncio.run(fill())
    return url


def rest(_url: str) -> str:
    """How many jobs are not finished."""
    return "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"


def work(shift: Shift, counter: Counter) -> None:
    """Run a worker without end."""

    async def run() -> None:
        app, _ = _app(shift.url, counter)
        async with app.open_async():
            await app.run_worker_async(concurrency=int(shift.options["concurrency"]))

    asyncio.run(run())


@asynccontextmanager
async def sender(url: str) -> AsyncGenerator[Callable[[dict[str, Any]], Awaitable[object]]]:
    """`defer_async`, one job at a time."""
    app, task = _app(url, None)
    async with app.open_async():
        yield lambda content: task.defer_async(**content)


def _app(url: str, counter: Counter | None) -> tuple[Any, Any]:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

    async def send(user: int, template: str, note: str) -> None:
        del template, note
        if counter is not None:
            counter.count(monotonic_ns() - user)

    return app, app.task(name=KIND)(send)
