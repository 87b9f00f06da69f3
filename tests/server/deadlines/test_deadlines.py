"""Deadlines interrupt what takes too long, and nothing else."""

import asyncio
from contextlib import suppress

import pytest

from onefold.server.deadlines import Deadline, Deadlines


def cancelling() -> int:
    """How often this task was cancelled, and not told that it was not."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_what_takes_too_long_is_interrupted() -> None:
    deadline = Deadline(Deadlines(), 0.01)
    with pytest.raises(TimeoutError), deadline:
        await asyncio.Event().wait()

    assert (deadline.is_over, cancelling()) == (True, 0)


async def test_what_ends_in_time_is_left_alone_and_others_errors_pass() -> None:
    deadlines = Deadlines()
    with pytest.raises(TimeoutError, match="somebody else's"), Deadline(deadlines, 60):
        raise TimeoutError("somebody else's")
    with Deadline(deadlines, 0.0) as deadline:
        deadline.put_off(60)
        with pytest.raises(TimeoutError), Deadline(deadlines, 0.0):
            await asyncio.Event().wait()

    assert not deadline.is_over


async def test_who_does_not_hear_it_is_told_again() -> None:
    """As `asyncio.wait_for` does in Python 3.11 when what it waits for comes at that moment."""

    async def deaf() -> None:
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError), Deadline(Deadlines(again=0.0), 0.0):
        await deaf()

    assert cancelling() == 0


async def test_who_is_cancelled_by_somebody_else_stays_cancelled() -> None:
    async def wait() -> None:
        with Deadline(Deadlines(), 60):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_each_event_loop_has_its_own() -> None:
    deadlines = Deadlines()

    async def wait() -> None:
        with pytest.raises(TimeoutError), Deadline(deadlines, 0.0):
            await asyncio.Event().wait()

    asyncio.run(wait())
    asyncio.run(wait())
