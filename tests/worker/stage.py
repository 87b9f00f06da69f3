"""A worker for the length of a test, and ways to wait for what it does."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from onefold import Job, Onefold
from onefold.worker.worker import Worker
from tests.fixtures.patience import HANG, LOCK

T = TypeVar("T")

PATIENCE = HANG
QUICK = timedelta(milliseconds=400)
"""A lease for tests that let one end."""
BEAT = timedelta(milliseconds=100)
HELD: Any = {"lease": LOCK, "heartbeat": BEAT}
"""Leases that no pause of the machine ends, and that are extended all the time."""


def perform(play: Callable[[], Coroutine[Any, Any, T]], onefold: Onefold) -> T:
    """Run a play in an event loop of its own, and close what it has opened there."""

    async def whole() -> T:
        try:
            return await play()
        finally:
            await onefold.aclose()

    return asyncio.run(whole())


@asynccontextmanager
async def working(onefold: Onefold, **options: Any) -> AsyncGenerator[Worker]:
    """A worker that looks often: a test waits for it, and not it for the test."""
    options.setdefault("poll", timedelta(milliseconds=200))
    options.setdefault("grace", LOCK)
    async with onefold.worker(**options) as worker:
        yield worker


class Slow:
    """A job that says that it has begun, and does not end before it may."""

    def __init__(self, onefold: Onefold) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

        @onefold.job
        async def slow() -> None:
            self.begun.set()
            await self.may_end.wait()

        self.job = slow


async def until(condition: Callable[[], Any], *, patience: float = PATIENCE) -> None:
    """Wait for something to become true, and say so if it does not."""
    deadline = time.monotonic() + patience
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("what the test waited for did not happen")
        await asyncio.sleep(0.01)


def spin() -> None:
    """Do not wait for anything, until interrupted.

    A handler calls it inside of its `try`: since Python 3.12, an exception that arrives at the end
    of a `while` loop passes by the `except` and `finally` around that loop in the same function.
    """
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        pass


async def get_job(onefold: Onefold, job_id: str) -> Job:
    """A job that must be there."""
    job = await onefold.aget(job_id)
    assert job is not None
    return job


async def ended(onefold: Onefold, *ids: str) -> None:
    """Wait until these jobs have ended, however."""

    async def all_have() -> bool:
        jobs = [await onefold.aget(job_id) for job_id in ids]
        return all(job is None or job.state in {"completed", "dead", "cancelled"} for job in jobs)

    await until(all_have)
