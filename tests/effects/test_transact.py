"""`run.transact`: steps whose effect and record are one commit."""

from typing import Any

import pytest

from onefold import KeyReused, OutcomeUnknown, StepsChanged
from tests.effects.deliveries import Deliveries, execute, in_colour
from tests.fixtures.colours import Colour, Store
from tests.fixtures.connection import Connection, Kind
from tests.fixtures.connections import Effects


class Failed(Exception):
    """What a handler raises."""


@pytest.fixture
def pay(effects: Effects, colour: Colour) -> Any:
    async def insert(tx: Any, number: int) -> dict[str, int]:
        await execute(tx, effects.insert(number))
        return {"paid": number}

    return in_colour(insert, colour)


async def test_f052_several_follow_each_other_and_each_is_done_once(
    deliveries: Deliveries, effects: Effects, pay: Any
) -> None:
    run = deliveries.first()
    first = [await run.transact("pay", pay, number) for number in (1, 2)]
    run = deliveries.again(run)

    again = [await run.transact("pay", pay, number) for number in (1, 2)]
    async with run.transaction():
        pass

    assert first == again == [{"paid": 1}, {"paid": 2}]
    assert effects.numbers == [1, 2]
    assert run.target.completed


async def test_f052_a_failure_leaves_neither_row_nor_record_and_the_next_try_is_the_same_step(
    deliveries: Deliveries, effects: Effects, pay: Any, colour: Colour
) -> None:
    async def failing(tx: Any, number: int) -> None:
        await execute(tx, effects.insert(number))
        raise Failed

    run = deliveries.first()
    with pytest.raises(Failed):
        await run.transact("pay", in_colour(failing, colour), 1)

    assert effects.numbers == []
    assert deliveries.onefold.deliveries.steps(run.target.id) == []
    # After a conflict, say: a rerun finds the step where it asks for it first.
    first = await run.transact("pay", pay, 1)
    assert await deliveries.again(run).transact("pay", pay, 1) == first
    assert effects.numbers == [1]


async def test_a_handler_that_requests_a_rejected_one_again_means_the_same_step(
    deliveries: Deliveries, effects: Effects, pay: Any
) -> None:
    """An unsafe step of this name has an unknown outcome: each request for it is rejected."""

    def lost(number: int) -> None:
        raise Failed(number)

    run = deliveries.first()
    with pytest.raises(OutcomeUnknown):
        await run.using(unsafe=True).step("pay", lost, 1)
    run = deliveries.again(run)

    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await run.transact("pay", pay, 1)
    assert effects.numbers == []


async def test_f052_it_is_a_step_like_others(
    deliveries: Deliveries, effects: Effects, pay: Any
) -> None:
    run = deliveries.first()
    await run.transact("pay", pay, 1)

    run = deliveries.again(run)
    with pytest.raises(StepsChanged):
        await run.transact("refund", pay, 1)
    with pytest.raises(KeyReused):
        await run.transact("pay", pay, 2)


async def test_f052_on_a_connection_of_any_library(
    kind: Kind, store: Store, deliveries: Deliveries, effects: Effects, colour: Colour
) -> None:
    connection: Connection = await kind.connect(store)
    run = deliveries.first()

    async def pay(tx: object) -> int:
        await connection.execute(effects.insert(1))
        return 1

    for _ in range(2):
        await run.using(on=connection.raw).transact("pay", in_colour(pay, colour))
        run = deliveries.again(run)

    assert effects.numbers == [1]
