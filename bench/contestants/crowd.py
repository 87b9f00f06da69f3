"""Many callers at once in one process, each with its next job as soon as the last is stored."""

from __future__ import annotations

import asyncio
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any, Final

from bench.payloads import payloads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.stopwatch import Stopwatch
    from bench.values import Order

CALLERS: Final = 64
WARM: Final = 10
"""Calls of each before the watch is started: pools are as large as they get, statements known."""


def crowd_size(order: Order) -> int:
    """How many jobs are stored in the end, those of the warm-up included."""
    return CALLERS * WARM + order.jobs


def _shares(jobs: int) -> list[list[dict[str, Any]]]:
    contents = payloads(jobs)
    return [contents[caller::CALLERS] for caller in range(CALLERS)]


async def acrowd(
    order: Order, watch: Stopwatch, enqueue: Callable[[dict[str, Any]], Awaitable[object]]
) -> None:
    """Tasks of one event loop."""

    async def call(share: list[dict[str, Any]]) -> None:
        for content in share:
            await enqueue(content)

    async def all_call(shares: list[list[dict[str, Any]]]) -> None:
        async with asyncio.TaskGroup() as group:
            for share in shares:
                group.create_task(call(share))

    await all_call(_shares(CALLERS * WARM))
    shares = _shares(order.jobs)
    with watch.running(order.jobs):
        await all_call(shares)


def crowd(order: Order, watch: Stopwatch, enqueue: Callable[[dict[str, Any]], object]) -> None:
    """Threads, which are there before the watch is started."""
    warm, shares = _shares(CALLERS * WARM), _shares(order.jobs)
    start, end = Barrier(CALLERS + 1), Barrier(CALLERS + 1)

    def call(caller: int) -> None:
        try:
            for content in warm[caller]:
                enqueue(content)
            start.wait()
            for content in shares[caller]:
                enqueue(content)
            end.wait()
        except BaseException:
            start.abort()
            end.abort()
            raise

    threads = [Thread(target=call, args=[caller]) for caller in range(CALLERS)]
    for thread in threads:
        thread.start()
    # The last to arrive lets all go: with the watch running, that is us.
    while start.n_waiting < CALLERS and not start.broken:
        threads[0].join(0.001)
    with watch.running(order.jobs):
        start.wait()
        end.wait()
    for thread in threads:
        thread.join()
