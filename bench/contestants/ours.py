"""Onefold, by its public calls, on PostgreSQL or SQLite as the order's URL says."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from bench import sqlite_stage, stage
from bench.contestants.crowd import acrowd, crowd, crowd_size
from bench.payloads import KIND, batches, keys, payloads
from onefold import NewJob, Onefold

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from bench.stopwatch import Stopwatch
    from bench.values import Order
    from onefold import Job

WARM: Final = 10
"""Calls before the watch is started: more than psycopg needs to prepare a statement."""
LEASE: Final = timedelta(minutes=5)
BATCH: Final = 200


@contextmanager
def _opened(order: Order, stored: int) -> Generator[Onefold]:
    """Onefold on a new database, in which the run will have stored so many jobs."""
    if order.url.startswith("sqlite:"):
        sqlite_stage.new_file(order.url)
        with Onefold(order.url) as onefold:
            onefold.migrate()
            yield onefold
        sqlite_stage.expect(order.url, "select count(*) from onefold_job", stored)
        return
    url = stage.onefold_database(order)
    stage.settle(url)
    with Onefold(url) as onefold:
        yield onefold
    stage.expect(url, "select count(*) from onefold.job", stored)


def _new_jobs(contents: Sequence[dict[str, Any]]) -> list[NewJob]:
    return [NewJob(KIND, content) for content in contents]


def bulk(order: Order, watch: Stopwatch) -> None:
    """`enqueue_many`, so many jobs a call."""
    contents = payloads(order.jobs)
    with _opened(order, WARM * 10 + order.jobs) as onefold:
        for _ in range(WARM):
            onefold.enqueue_many(_new_jobs(payloads(10)))
        with watch.running(order.jobs):
            for batch in batches(contents, order.number("batch")):
                onefold.enqueue_many(_new_jobs(batch))


def keyed(order: Order, watch: Stopwatch) -> None:
    """`enqueue_many` with keys, half of them held already."""
    contents = list(zip(payloads(order.jobs), keys(order.jobs), strict=True))
    with _opened(order, WARM + order.jobs // 2) as onefold:
        for number in range(WARM):
            warm = [NewJob(KIND, {}, unique_key=f"warm:{number}")] * 2
            onefold.enqueue_many(warm)
        with watch.running(order.jobs):
            for batch in batches(contents, order.number("batch")):
                onefold.enqueue_many(
                    [NewJob(KIND, content, unique_key=key) for content, key in batch]
                )


def single(order: Order, watch: Stopwatch) -> None:
    """`enqueue`, one after the other."""
    contents = payloads(order.jobs)
    with _opened(order, WARM + order.jobs) as onefold:
        for content in payloads(WARM):
            onefold.enqueue(KIND, content)
        with watch.running(order.jobs):
            for content in contents:
                onefold.enqueue(KIND, content)


def asingle(order: Order, watch: Stopwatch) -> None:
    """`aenqueue`, one after the other."""

    async def run(onefold: Onefold) -> None:
        contents = payloads(order.jobs)
        for content in payloads(WARM):
            await onefold.aenqueue(KIND, content)
        with watch.running(order.jobs):
            for content in contents:
                await onefold.aenqueue(KIND, content)
        await onefold.aclose()

    with _opened(order, WARM + order.jobs) as onefold:
        asyncio.run(run(onefold))


def tasks(order: Order, watch: Stopwatch) -> None:
    """`aenqueue` by many tasks at once."""
    with _opened(order, crowd_size(order)) as onefold:
        asyncio.run(_tasks(onefold, order, watch))


async def _tasks(onefold: Onefold, order: Order, watch: Stopwatch) -> None:
    async def enqueue(content: dict[str, Any]) -> None:
        await onefold.aenqueue(KIND, content)

    await acrowd(order, watch, enqueue)
    await onefold.aclose()


def threads(order: Order, watch: Stopwatch) -> None:
    """`enqueue` by many threads at once."""
    with _opened(order, crowd_size(order)) as onefold:
        crowd(order, watch, lambda content: onefold.enqueue(KIND, content))


def take(order: Order, watch: Stopwatch) -> None:
    """`finish_and_take` in a loop, until all jobs are finished."""
    with _loaded(order, order.jobs + WARM * BATCH) as onefold:
        _drain(onefold, WARM)
        with watch.running(order.jobs):
            _drain(onefold, order.jobs // BATCH)


@contextmanager
def _loaded(order: Order, count: int) -> Generator[Onefold]:
    """Onefold on a database with so many jobs, which the run will have finished."""
    if order.url.startswith("sqlite:"):
        sqlite_stage.load(order.url, count)
        with Onefold(order.url) as onefold:
            yield onefold
        sqlite_stage.expect(order.url, sqlite_stage.FINISHED, count)
        return
    url = stage.loaded_database(order, count)
    stage.settle(url)
    with Onefold(url) as onefold:
        yield onefold
    stage.expect(url, stage.FINISHED, count)


def _drain(onefold: Onefold, turns: int) -> None:
    """Complete the last batch and take the next in one call, so many times."""
    jobs: list[Job] = []
    for _ in range(turns):
        _, jobs = onefold.deliveries.finish_and_take(jobs, limit=BATCH, worker="bench", lease=LEASE)
    onefold.deliveries.finish(jobs)
