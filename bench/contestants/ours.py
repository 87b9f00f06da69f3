"""Onefold, by its public calls, on PostgreSQL or SQLite as the order's URL says."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from bench import sqlite_stage, stage
from bench.contestants.crowd import acrowd, crowd, crowd_size
from bench.payloads import KIND, batches, keys, payloads, unique_keys
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
KEPT: Final = 500
"""Keys of `once` that are asked for again and again, where each has its result."""


@contextmanager
def _opened(
    order: Order, stored: int, *, seen: Sequence[NewJob] = (), claims: bool = False
) -> Generator[Onefold]:
    """Onefold on a new database, in which the run will have stored so many jobs, or claims.

    Jobs that the run finds there are stored before.
    """
    if order.url.startswith("sqlite:"):
        sqlite_stage.onefold_file(order.url)
        _store(order.url, seen)
        with Onefold(order.url) as onefold:
            yield onefold
        query = sqlite_stage.SETTLED if claims else sqlite_stage.STORED
        sqlite_stage.expect(order.url, query, stored)
        return
    url = stage.onefold_database(order)
    if seen:
        _store(url, seen)
        stage.analyze(url)
    stage.settle(url)
    with Onefold(url) as onefold:
        yield onefold
    stage.expect(url, stage.SETTLED if claims else stage.STORED, stored)


def _store(url: str, jobs: Sequence[NewJob]) -> None:
    with Onefold(url) as onefold:
        for batch in batches(jobs, 1_000) if jobs else ():
            onefold.enqueue_many(batch)


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
    """`enqueue_many` with keys: half of them are held already, or as many as the order says."""
    duplicates = order.word("duplicates") or "half"
    wanted = keys(order.jobs) if duplicates == "half" else unique_keys(order.jobs)
    contents = list(zip(payloads(order.jobs), wanted, strict=True))
    jobs = [NewJob(KIND, content, unique_key=key) for content, key in contents]
    seen = jobs if duplicates == "all" else []
    with _opened(order, WARM + len(set(wanted)), seen=seen) as onefold:
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
    calls, seen = _calls(order)
    with _opened(order, len(calls), seen=seen) as onefold:
        for content, options in calls[:WARM]:
            onefold.enqueue(KIND, content, **options)
        with watch.running(order.jobs):
            for content, options in calls[WARM:]:
                onefold.enqueue(KIND, content, **options)


def asingle(order: Order, watch: Stopwatch) -> None:
    """`aenqueue`, one after the other."""
    calls, seen = _calls(order)

    async def run(onefold: Onefold) -> None:
        for content, options in calls[:WARM]:
            await onefold.aenqueue(KIND, content, **options)
        with watch.running(order.jobs):
            for content, options in calls[WARM:]:
                await onefold.aenqueue(KIND, content, **options)
        await onefold.aclose()

    with _opened(order, len(calls), seen=seen) as onefold:
        asyncio.run(run(onefold))


def _calls(order: Order) -> tuple[list[tuple[dict[str, Any], dict[str, Any]]], list[NewJob]]:
    """The payload and the key of each call, and the jobs that are there before: none, or all."""
    count, key = WARM + order.jobs, order.word("key")
    named: list[dict[str, Any]] = [{key: text} if key else {} for text in unique_keys(count)]
    calls = list(zip(payloads(count), named, strict=True))
    seen = calls if order.number("seen") else []
    return calls, [NewJob(KIND, content, **options) for content, options in seen]


def once(order: Order, watch: Stopwatch) -> None:
    """`once`, one after the other: each key is new, or each has its result."""
    contents = payloads(WARM + order.jobs)
    numbers: Sequence[int] = range(len(contents))
    if seen := order.number("seen"):
        numbers = [number % KEPT for number in numbers]

    with _opened(order, len(set(numbers)), claims=True) as onefold:

        def run(number: int) -> None:
            with onefold.once(KIND, f"email:{number:08}") as claim:
                if claim.won:
                    claim.result = contents[number]

        for number in dict.fromkeys(numbers) if seen else ():
            run(number)
        for number in numbers[:WARM]:
            run(number)
        with watch.running(order.jobs):
            for number in numbers[WARM:]:
                run(number)


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
