"""Real worker processes of any contestant: throughput, latency and CPU time.

The option `worker` names a module of this folder that is a `Worker`. All have the same handler: it
only counts, and records how long ago the job was sent.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import closing, contextmanager
from importlib import import_module
from math import ceil
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import psycopg

from bench import sqlite_stage, stage
from bench.crew import GLANCE, Crew, crew
from bench.payloads import payload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from contextlib import AbstractAsyncContextManager

    from bench.stopwatch import Stopwatch
    from bench.tally import Counter
    from bench.values import Order, Shift

EARLY: Final = 5
"""One job in so many is handled before the watch is started: all processes are at work by then,
connections open and statements prepared."""
FIRST: Final = 20
"""Jobs that are sent before samples count."""
PAUSE: Final = (0.02, 0.08)
"""Between two jobs on an idle queue, in seconds: at least and at most."""
SETTLE: Final = 5.0
"""Seconds until a worker that has just begun is as idle as it gets."""
MEGABYTE: Final = 1e6


class Worker(Protocol):
    """What a module of a worker has."""

    def load(self, order: Order, count: int) -> str:
        """The URL of a database with so many jobs to handle."""
        ...

    def rest(self, url: str) -> str:
        """A query: how many jobs are not finished yet."""
        ...

    def work(self, shift: Shift, counter: Counter) -> None:
        """Handle jobs, in a process of its own, without end."""
        ...

    def sender(
        self, url: str
    ) -> AbstractAsyncContextManager[Callable[[dict[str, Any]], Awaitable[object]]]:
        """Who enqueues one job at a time; only where latency is measured."""
        ...


def drain(order: Order, watch: Stopwatch) -> None:
    """Handle jobs that are there already, to the last one, and see what memory grows to."""
    jobs = order.jobs // (order.number("one_in") or 1)
    early = jobs // (EARLY - 1)
    url = _loaded(order, early + jobs)
    with _rest(order, url, watch) as rest, crew(order, url) as hired:
        counts = hired.tally.counts
        while not all(counts) or sum(counts) < early:
            hired.glance()
            counts = hired.tally.counts
        left = early + jobs - sum(counts)
        if left <= 0:
            raise RuntimeError("Everything was done before the watch was started: too few jobs.")
        at_first = hired.resident_bytes()
        with watch.running(left, hired.cpu_seconds):
            while sum(hired.tally.counts) < early + jobs or rest():
                hired.glance()
        at_last = hired.resident_bytes()
    watch.marks = {
        "MB after a fifth": at_first / MEGABYTE,
        "MB at the end": at_last / MEGABYTE,
        "growth": at_last / at_first if at_first else 0.0,
    }


def latency(order: Order, watch: Stopwatch) -> None:
    """Send one job at a time to an idle worker, at irregular times."""
    url = _loaded(order, 0)
    with crew(order, url) as hired:
        asyncio.run(_send(order, url, hired, watch))
        samples = sorted(hired.tally.samples(0)[FIRST:])
    milliseconds = [sample / 1e6 for sample in samples]
    p50, p99 = median(milliseconds), milliseconds[ceil(len(samples) * 0.99) - 1]
    watch.marks = {"p50 ms": p50, "p99 ms": p99, "p99 / p50": p99 / p50}


async def _send(order: Order, url: str, hired: Crew, watch: Stopwatch) -> None:
    random = Random(order.jobs)

    async def go(send: Callable[[dict[str, Any]], Awaitable[object]], start: int, end: int) -> None:
        for number in range(start, end):
            await send({**payload(0), "user": time.monotonic_ns()})
            await asyncio.sleep(random.uniform(*PAUSE))
            while sum(hired.tally.counts) <= number:
                hired.check()
                await asyncio.sleep(GLANCE)

    async with _worker(order).sender(url) as send:
        await go(send, 0, FIRST)
        with watch.running(order.jobs, hired.cpu_seconds):
            await go(send, FIRST, FIRST + order.jobs)


def idle(order: Order, watch: Stopwatch) -> None:
    """Have nothing to do: how much a worker asks and uses meanwhile."""
    url = _loaded(order, FIRST)
    log = stage.log_statements(url) if url.startswith("postgresql:") else None
    with crew(order, url) as hired:
        while sum(hired.tally.counts) < FIRST:
            hired.glance()
        time.sleep(SETTLE)
        logged = log.stat().st_size if log else 0
        with watch.running(0, hired.cpu_seconds):
            time.sleep(order.number("seconds"))
        assert watch.lap is not None
        seconds = watch.lap.seconds
        if log:
            text = log.read_bytes()[logged:].decode(errors="replace")
            watch.marks["queries/s"] = stage.statements(text, url) / seconds
        watch.marks["CPU %"] = 100 * watch.lap.cpu_seconds / seconds
        watch.marks["MB"] = hired.resident_bytes() / MEGABYTE


def _worker(order: Order) -> Worker:
    return cast("Worker", import_module(f"bench.contestants.{order.word('worker')}"))


def _loaded(order: Order, count: int) -> str:
    """The URL of a database with so many jobs, and nothing left to write or to find out."""
    url = _worker(order).load(order, count)
    if url.startswith("postgresql:"):
        stage.analyze(url)
        stage.settle(url)
    return url


@contextmanager
def _rest(order: Order, url: str, watch: Stopwatch) -> Generator[Callable[[], int]]:
    """Ask how many jobs are not finished."""
    query = _worker(order).rest(url)
    if url.startswith("sqlite:"):
        with closing(sqlite_stage.connect(url)) as file:
            yield lambda: file.execute(query).fetchone()[0]
        return
    with psycopg.connect(url, autocommit=True) as connection:
        watch.leave_out(connection.info.backend_pid)
        yield lambda: connection.execute(query.encode()).fetchall()[0][0]
