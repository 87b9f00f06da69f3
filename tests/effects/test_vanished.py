"""Workers that vanish, and those that come back as if nothing had happened."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import LeaseLost, OutcomeUnknown
from onefold.claims import Done
from tests.effects.deliveries import Deliveries, Effect, interrupt
from tests.fixtures.colours import Colour, coroutine_function


async def test_f062_the_record_of_a_worker_that_lost_its_job_is_refused(
    deliveries: Deliveries,
) -> None:
    """It comes back while its successor has done the same step, and goes on."""
    zombie = deliveries.first()
    later: list[Any] = []

    def slow() -> str:
        later.append(deliveries.vanish())
        later.append(later[0].target.step("charge", lambda: "the second one's"))
        return "the first one's"

    with pytest.raises(LeaseLost):
        await zombie.step("charge", slow)

    assert zombie.target.lost
    (step,) = deliveries.onefold.deliveries.steps(zombie.target.id)
    assert (step.state, step.result, step.attempts) == ("finished", "the second one's", 2)
    assert later[1] == "the second one's"


async def test_f062_what_was_recorded_before_anybody_took_the_job_counts(
    deliveries: Deliveries,
) -> None:
    """The lease is over, but the fence alone decides."""
    zombie, effect = deliveries.first(), Effect()

    def slow() -> str:
        deliveries.clock.advance(timedelta(minutes=5))
        deliveries.onefold.deliveries.rescue()
        return "in time"

    assert await zombie.step("charge", slow) == "in time"
    deliveries.clock.advance(timedelta(days=1))
    assert await deliveries.take().step("charge", effect) == "in time"
    assert effect.count == 0


async def test_f062_a_worker_that_lost_its_job_adopts_what_was_stored_and_begins_nothing(
    deliveries: Deliveries,
) -> None:
    zombie, effect = deliveries.first(), Effect()
    await deliveries.vanish().step("charge", lambda: "the second one's")

    assert await zombie.step("charge", effect) == "the second one's"
    for begins in (zombie.step("mail", effect), zombie.now()):
        with pytest.raises(LeaseLost):
            await begins
    assert effect.count == 0


async def test_f051_a_step_that_vanished_is_done_again(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()
    await interrupt(run.step, effect)

    assert await deliveries.vanish().step("charge", effect, 7) == {"done": 7}
    assert effect.count == 2


async def test_f070_a_job_that_comes_back_need_not_wait_for_what_it_began_itself(
    deliveries: Deliveries,
) -> None:
    """Deferred in the middle of a step, long before any lease is over."""
    effect = Effect()
    run = deliveries.first()
    await interrupt(run.step, effect)
    deliveries.onefold.deliveries.defer([run.target.job], after=timedelta(0))

    assert await deliveries.take().step("charge", effect, 7) == {"done": 7}


async def test_f051_an_unsafe_step_that_vanished_is_unknown_until_it_is_verified(
    deliveries: Deliveries, colour: Colour
) -> None:
    effect = Effect()
    run = deliveries.first()
    await interrupt(run.using(unsafe=True).step, effect)
    assert deliveries.onefold.deliveries.steps(run.target.id)[0].state == "running"

    run = deliveries.vanish()
    with pytest.raises(OutcomeUnknown, match="charge"):
        await run.using(unsafe=True).step("charge", effect, 7)

    assert deliveries.onefold.deliveries.steps(run.target.id)[0].state == "unknown"
    asked: list[str] = []

    def look_up(key: str) -> Done:
        asked.append(key)
        return Done("receipt")

    careful = run.using(
        unsafe=True, verify=coroutine_function(look_up) if colour == "async" else look_up
    )
    assert await careful.step("charge", effect, 7) == "receipt"
    assert asked == [run.key("charge")]
    assert await deliveries.again(run).step("charge", effect, 7) == "receipt"
    assert effect.count == 1
