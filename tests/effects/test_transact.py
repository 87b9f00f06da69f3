"""`run.transact`: steps whose effect and record are one commit."""

from typing import Any

import pytest

from onefold import KeyReused, OutcomeUnknown, StepsChanged
from tests.effects.deliveries import Deliveries
from tests.fixtures.colours import Colour, Store
from tests.fixtures.connection import Connection, Kind
from tests.fixtures.connections import Effects


class Failed(Exception):
    """What a handler raises."""


class Pay:
    """Writes a row by the connection that it is given."""

    def __init__(self, effects: Effects, colour: Colour) -> None:
        self._effects = effects
        self._colour = colour

    @property
    def function(self) -> Any:
        return self._awaited if self._colour == "async" else self._blocking

    def _blocking(self, tx: Any, number: int) -> dict[str, int]:
        tx.execute(self._effects.insert(number))
        return {"paid": number}

    async def _awaited(self, tx: Any, number: int) -> dict[str, int]:
        await tx.execute(self._effects.insert(number))
        return {"paid": number}


@pytest.fixture
def pay(effects: Effects, colour: Colour) -> Any:
    return Pay(effects, colour).function


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


async def test_f052_a_failure_leaves_neither_row_nor_record(
    deliveries: Deliveries, effects: Effects, pay: Any, colour: Colour
) -> None:
    def failing(tx: Any) -> None:
        tx.execute(effects.insert(1))
        raise Failed

    async def afailing(tx: Any) -> None:
        await tx.execute(effects.insert(1))
        raise Failed

    run = deliveries.first()
    with pytest.raises(Failed):
        await run.transact("pay", failing if colour == "sync" else afailing)

    assert effects.numbers == []
    assert deliveries.onefold.deliveries.steps(run.target.id) == []
    assert await deliveries.again(run).transact("pay", pay, 1) == {"paid": 1}


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

    async def apay(tx: object) -> int:
        await connection.execute(effects.insert(1))
        return 1

    def pay(tx: object) -> int:
        try:
            apay(tx).send(None)  # nothing in it is really awaited
        except StopIteration as done:
            found: int = done.value
            return found
        raise AssertionError

    function: Any = apay if colour == "async" else pay
    await run.using(on=connection.raw).transact("pay", function)
    run = deliveries.again(run)
    await run.using(on=connection.raw).transact("pay", function)

    assert effects.numbers == [1]


async def test_a_transaction_that_is_tried_again_in_the_same_run_is_the_same_step(
    deliveries: Deliveries, pay: Any, effects: Effects, colour: Colour
) -> None:
    """After a conflict, say: a rerun finds the step where it asks for it first."""
    run = deliveries.first()
    with pytest.raises(Failed):
        await run.transact("pay", _failing(colour), 1)
    first = await run.transact("pay", pay, 1)
    run = deliveries.again(run)

    assert await run.transact("pay", pay, 1) == first
    assert effects.numbers == [1]


def _failing(colour: Colour) -> Any:
    def fail(tx: Any, number: int) -> None:
        raise Failed(tx, number)

    async def afail(tx: Any, number: int) -> None:
        raise Failed(tx, number)

    return afail if colour == "async" else fail
