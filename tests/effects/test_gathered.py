"""Steps at the same time: matched by what they are, never by who was first."""

import asyncio
from typing import Any

import pytest

from onefold import StepsChanged
from tests.effects.deliveries import Deliveries, Effect
from tests.fixtures.patience import HANG

pytestmark = pytest.mark.parametrize("colour", ["async"])


class Gate:
    """Lets calls end in the order in which they are let through, and not in which they began."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def event(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())

    async def __call__(self, name: str) -> str:
        await self.event(name).wait()
        return f"result of {name}"


async def test_f058_results_are_matched_by_key_and_not_by_who_was_first(
    deliveries: Deliveries,
) -> None:
    gate = Gate()
    run = deliveries.first()
    both = asyncio.gather(*(run.target.astep(name, gate, name) for name in ("a", "b")))
    gate.event("b").set()
    await wait_for_step(deliveries, run.target.id, "b")
    gate.event("a").set()
    first = await both

    run = deliveries.again(run)
    again = await asyncio.gather(*(run.target.astep(name, gate, name) for name in ("a", "b")))

    assert first == again == ["result of a", "result of b"]


async def test_f058_steps_of_one_name_that_run_at_once_have_keys(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()

    async def one(order: str) -> Any:
        return await run.target.using(key=order).astep("charge", effect, order)

    first = await asyncio.gather(one("x"), one("y"))
    run = deliveries.again(run)
    again = await asyncio.gather(one("y"), one("x"))

    assert list(first) == list(again)[::-1] == [{"done": "x"}, {"done": "y"}]
    assert effect.count == 2


async def test_f055_steps_at_the_same_time_do_not_look_like_changed_code(
    deliveries: Deliveries,
) -> None:
    """Of two branches, one had come further than the other; now the other is asked first."""
    gate = Gate()
    run = deliveries.first()

    async def branch(*names: str) -> list[str]:
        return [await run.target.astep(name, gate, name) for name in names]

    task = asyncio.gather(branch("a", "c", "e"), branch("b", "d"))
    for name in ("a", "b", "c"):
        gate.event(name).set()
        await wait_for_step(deliveries, run.target.id, name)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    run = deliveries.again(run)
    for name in "abcde":
        gate.event(name).set()
    results = await asyncio.gather(branch("b", "d"), branch("a", "c", "e"))

    assert [len(result) for result in results] == [2, 3]


async def test_f055_changed_code_in_a_branch_is_told_where_the_way_was_the_same(
    deliveries: Deliveries,
) -> None:
    effect = Effect()
    run = deliveries.first()
    await asyncio.gather(*(run.target.astep(name, effect, name) for name in ("a", "b")))
    await run.target.astep("c", effect, "c")

    run = deliveries.again(run)
    await asyncio.gather(*(run.target.astep(name, effect, name) for name in ("b", "a")))
    with pytest.raises(StepsChanged):
        await run.target.astep("d", effect, "d")


async def wait_for_step(deliveries: Deliveries, job_id: str, name: str) -> None:
    async with asyncio.timeout(HANG):
        while True:
            steps = await deliveries.onefold.deliveries.asteps(job_id)
            if any(step.name == name and step.state == "finished" for step in steps):
                return
            await asyncio.sleep(0.001)
