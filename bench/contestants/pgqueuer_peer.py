"""PgQueuer on asyncpg, as its own documentation sets it up.

Tables as installed by default (all logged). One connection where one call follows the other; its
pool driver where many call at once. The payload is encoded by msgspec, since PgQueuer takes bytes.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bench import stage
from bench.contestants.crowd import acrowd, crowd_size
from bench.payloads import KIND, batches, encode, keys, payloads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bench.stopwatch import Stopwatch
    from bench.values import Order

# Peers live in an environment of their own, where no type checker looks.
asyncpg: Any = import_module("asyncpg")
Queries: Any = import_module("pgqueuer.queries").Queries

WARM: Final = 10
STORED: Final = "select count(*) from pgqueuer"


def bulk(order: Order, watch: Stopwatch) -> None:
    """`enqueue` with lists, so many jobs a call."""

    async def run(queries: Any) -> None:
        contents = payloads(order.jobs)
        for _ in range(WARM):
            await _enqueue(queries, payloads(10))
        with watch.running(order.jobs):
            for batch in batches(contents, order.number("batch")):
                await _enqueue(queries, batch)

    _play(order, run, stored=WARM * 10 + order.jobs)


async def _enqueue(queries: Any, contents: Sequence[dict[str, Any]]) -> None:
    count = len(contents)
    await queries.enqueue([KIND] * count, [encode(content) for content in contents], [0] * count)


def keyed(order: Order, watch: Stopwatch) -> None:
    """`enqueue` with a dedupe key each, half of them held already, which are skipped."""

    async def run(queries: Any) -> None:
        contents = list(zip(payloads(order.jobs), keys(order.jobs), strict=True))
        for number in range(WARM):
            await _enqueue_keyed(queries, [({}, f"warm:{number}"), ({}, f"warm:{number}")])
        with watch.running(order.jobs):
            for batch in batches(contents, order.number("batch")):
                await _enqueue_keyed(queries, batch)

    _play(order, run, stored=WARM + order.jobs // 2)


async def _enqueue_keyed(queries: Any, contents: Sequence[tuple[dict[str, Any], str]]) -> None:
    count = len(contents)
    await queries.enqueue(
        [KIND] * count,
        [encode(content) for content, _ in contents],
        [0] * count,
        dedupe_key=[key for _, key in contents],
        on_conflict="skip",
    )


def asingle(order: Order, watch: Stopwatch) -> None:
    """`enqueue`, one after the other."""

    async def run(queries: Any) -> None:
        contents = payloads(order.jobs)
        for content in payloads(WARM):
            await queries.enqueue(KIND, encode(content))
        with watch.running(order.jobs):
            for content in contents:
                await queries.enqueue(KIND, encode(content))

    _play(order, run, stored=WARM + order.jobs)


def tasks(order: Order, watch: Stopwatch) -> None:
    """`enqueue` by many tasks at once, over a pool."""

    async def play(url: str) -> None:
        size = order.number("pool")
        async with asyncpg.create_pool(url, min_size=size, max_size=size) as pool:
            queries = Queries.from_asyncpg_pool(pool)
            await queries.install()
            stage.settle(url)

            async def enqueue(content: dict[str, Any]) -> None:
                await queries.enqueue(KIND, encode(content))

            await acrowd(order, watch, enqueue)

    url = stage.new_database(order.url, "bench_pgqueuer")
    asyncio.run(play(url))
    stage.expect(url, STORED, crowd_size(order))


def _play(order: Order, run: Callable[[Any], Awaitable[None]], *, stored: int) -> None:
    async def play(url: str) -> None:
        connection = await asyncpg.connect(url)
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        stage.settle(url)
        await run(queries)
        await connection.close()

    url = stage.new_database(order.url, "bench_pgqueuer")
    asyncio.run(play(url))
    stage.expect(url, STORED, stored)
