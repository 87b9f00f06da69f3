"""Tasks that are cancelled, and threads that are interrupted: the others do not notice.

Whether the job of a caller that went away in the middle was stored, nobody can know: it is the same
as with a commit of its own. It is stored once, or not at all.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from onefold import Closed
from tests.batching.crowd import Crowd, answer, enqueue, holding
from tests.faults.proxy import Proxy
from tests.fixtures.colours import Coloured
from tests.fixtures.place import Place
from tests.race.crew import DEADLINE, values

SIZE = 8
SOON = timedelta(milliseconds=300)


@pytest.fixture
def colour() -> str:
    """Only tasks are cancelled."""
    return "async"


@pytest.fixture
def complaints() -> Iterator[list[dict[str, Any]]]:
    """What an event loop would log: errors that nobody read, tasks that were destroyed."""
    heard: list[dict[str, Any]] = []
    yield heard
    gc.collect()
    assert heard == []


def listen(complaints: list[dict[str, Any]]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))


async def payloads(crowd: Crowd) -> list[Any]:
    return sorted(job.payload for job in await crowd.onefold.find(limit=100))


@pytest.mark.parametrize("gone", [{0}, {SIZE - 1}, {2, 3, 5}, set(range(SIZE))], ids=str)
async def test_callers_that_are_cancelled_harm_nobody(
    crowd: Crowd, gone: set[int], complaints: list[dict[str, Any]]
) -> None:
    listen(complaints)

    async def cancel(tasks: list[Any]) -> None:
        for number in gone:
            tasks[number].cancel()

    calls = [enqueue(payload=n, unique_key=f"k{n}") for n in range(SIZE)]
    answers = await crowd.at_once(*calls, before=cancel)

    stay = set(range(SIZE)) - gone
    assert all(answers[number].get().inserted for number in stay)
    stored = await payloads(crowd)
    assert len(stored) == len(set(stored))
    assert stay <= set(stored)
    # Whoever went away may ask again, as after any call whose answer was lost.
    values(await crowd.at_once(*calls))
    assert await payloads(crowd) == list(range(SIZE))
    await crowd.is_idle()


async def test_a_caller_that_goes_away_before_its_batch_is_not_in_it(
    crowd: Crowd, complaints: list[dict[str, Any]]
) -> None:
    listen(complaints)
    calls = [enqueue(payload=n) for n in range(SIZE)]
    first: list[asyncio.Task[Any]] = []

    with crowd.bar():
        for call in calls[:3]:
            # A turn of the loop for each: none of them is in the batch of another.
            first.append(asyncio.create_task(call(crowd.onefold)))
            await asyncio.wait(first, timeout=0)
            await asyncio.wait(first, timeout=0)
        later = [asyncio.create_task(call(crowd.onefold)) for call in calls[3:]]
        await asyncio.wait(later, timeout=0)
        later[0].cancel()
        later[-1].cancel()
        await asyncio.wait([later[0], later[-1]])

    await asyncio.wait([*first, *later], timeout=DEADLINE)
    assert await payloads(crowd) == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize("turns", [1, 2, 5, 50])
def test_a_loop_that_ends_in_the_middle_leaves_nothing_behind(
    place: Place, complaints: list[dict[str, Any]], turns: int
) -> None:
    calls = [enqueue(payload=n, unique_key=f"k{n}") for n in range(SIZE)]

    async def leave_in_the_middle() -> None:
        listen(complaints)
        async with place.open(busy_timeout=SOON) as onefold:
            caller = Coloured(onefold, "async")
            tasks = [asyncio.create_task(answer(call(caller))) for call in calls]
            for _ in range(turns):
                await asyncio.wait(tasks, timeout=0)

    with holding(place, "k0", "k3"):
        asyncio.run(leave_in_the_middle())
    gc.collect()

    async def ask_again() -> None:
        async with place.open() as onefold:
            answers = [await call(Coloured(onefold, "async")) for call in calls]
            assert len({answer.id for answer in answers}) == SIZE
            assert sorted(job.payload for job in await onefold.afind()) == list(range(SIZE))

    asyncio.run(ask_again())


def test_a_loop_ends_though_its_pool_is_connecting(postgres_place: Place) -> None:
    """The pool's own tasks take a cancel for a connection that failed, and would go on."""
    with closing(Proxy(postgres_place.url)) as proxy:
        onefold = postgres_place._replace(url=proxy.url).open()
        onefold.find()

        async def leave_in_the_middle() -> None:
            before = proxy.accepted
            proxy.hold()
            task = asyncio.create_task(onefold.aenqueue("mail"))
            while proxy.accepted == before:
                await asyncio.wait([task], timeout=0.01)

        asyncio.run(leave_in_the_middle())
        proxy.let_go()
        onefold.close()


def test_who_asks_during_a_close_opens_no_other_pool(postgres_place: Place) -> None:
    onefold = postgres_place.open()
    onefold.find()

    async def ask_while_it_closes() -> None:
        ending = asyncio.create_task(onefold.context.database.aclose())
        # One turn of the loop: it has begun.
        await asyncio.wait([ending], timeout=0)
        with pytest.raises(Closed):
            await onefold.aenqueue("mail")
        await ending

    asyncio.run(ask_while_it_closes())
