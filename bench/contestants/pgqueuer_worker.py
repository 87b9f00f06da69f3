"""PgQueuer's worker: a queue manager on an asyncpg connection, with notifications."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from importlib import import_module
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

import uvloop

from bench import stage
from bench.contestants.pgqueuer_peer import Queries, asyncpg
from bench.payloads import KIND, batches, decode, encode, payloads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from bench.tally import Counter
    from bench.values import Order, Shift

# Peers live in an environment of their own, where no type checker looks.
QueueManager: Any = import_module("pgqueuer.qm").QueueManager

BATCH: Final = 1_000


def load(order: Order, count: int) -> str:
    """Its tables as installed, and jobs."""

    async def fill() -> None:
        connection = await asyncpg.connect(url)
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        for batch in batches(payloads(count), BATCH) if count else ():
            size = len(batch)
            contents = [encode(content) for content in batch]
            await queries.enqueue([KIND] * size, contents, [0] * size)
        await connection.close()

    url = stage.new_database(order.url, "bench_pgqueuer")
    asyncio.run(fill())
    return url


def rest(_url: str) -> str:
    """How many jobs are not finished."""
    return "select count(*) from pgqueuer"


def work(shift: Shift, counter: Counter) -> None:
    """Run a queue manager without end, on uvloop, as the command `pgq` does."""
    uvloop.run(_work(shift, counter))


async def _work(shift: Shift, counter: Counter) -> None:
    connection = await asyncpg.connect(shift.url)
    manager = QueueManager(Queries.from_asyncpg_connection(connection))

    async def send(job: Any) -> None:
        content = decode(job.payload)
        counter.count(monotonic_ns() - content["user"])

    manager.entrypoint(KIND)(send)
    await manager.run(batch_size=int(shift.options["batch"]))


@asynccontextmanager
async def sender(url: str) -> AsyncGenerator[Callable[[dict[str, Any]], Awaitable[object]]]:
    """`enqueue`, one job at a time."""
    connection = await asyncpg.connect(url)
    queries = Queries.from_asyncpg_connection(connection)
    yield lambda content: queries.enqueue(KIND, encode(content))
    await connection.close()
