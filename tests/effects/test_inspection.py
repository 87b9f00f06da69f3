"""What an operator sees of steps, and may say about them."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import InvalidInput, Step
from tests.effects.deliveries import Deliveries, Effect
from tests.fixtures.colours import Coloured


async def test_f071_steps_are_listed_with_attempts_durations_and_results(
    deliveries: Deliveries,
) -> None:
    run = deliveries.first()
    onefold = Coloured(deliveries.onefold, deliveries.colour)

    def slow() -> str:
        deliveries.clock.advance(timedelta(seconds=3))
        return "receipt"

    await run.step("charge", slow)
    await run.using(key="o-7").step("mail", Effect(), 1)

    charge, mail = await onefold.deliveries.steps(run.target.id)
    assert (charge.name, charge.state, charge.attempts) == ("charge", "finished", 1)
    assert (charge.duration, charge.result) == (timedelta(seconds=3), "receipt")
    assert (mail.label, mail.key, mail.result) == ("mail[o-7]", "o-7", {"done": 1})


async def test_f071_results_are_redacted(deliveries: Deliveries) -> None:
    run = deliveries.first()
    onefold = Coloured(deliveries.onefold, deliveries.colour)
    await run.step("card", lambda: {"number": "4242", "brand": "visa"})

    def brand(step: Step) -> Any:
        return {"brand": step.result["brand"]}

    (hidden,) = await onefold.deliveries.steps(run.target.id, results=False)
    (redacted,) = await onefold.deliveries.steps(run.target.id, results=brand)
    assert hidden.result is None
    assert redacted.result == {"brand": "visa"}
    with pytest.raises(InvalidInput):
        await onefold.deliveries.steps(run.target.id, results="no")


async def test_f071_steps_of_other_tenants_are_out_of_sight(deliveries: Deliveries) -> None:
    acme = deliveries.onefold.tenant("acme")
    job = acme.enqueue("work", {})
    run = deliveries.take()
    await run.step("charge", Effect())

    assert deliveries.onefold.deliveries.steps(job.id) == []
    assert [step.name for step in acme.deliveries.steps(job.id)] == ["charge"]


async def test_f065_f066_a_finished_job_that_is_asked_for_again_answers_with_its_result(
    deliveries: Deliveries,
) -> None:
    onefold = Coloured(deliveries.onefold, deliveries.colour)
    job = await onefold.enqueue("work", {"order": 7}, idempotency_key="order:7")
    run = deliveries.take()
    async with run.transaction():
        run.target.result = {"receipt": 1}

    again = await onefold.enqueue("work", {"order": 7}, idempotency_key="order:7")

    assert (again.id, again.duplicate, again.mismatch) == (job.id, True, False)
    assert again.result(timeout=timedelta(0)) == {"receipt": 1}
    other = await onefold.enqueue("work", {"order": 8}, idempotency_key="order:7")
    assert (other.id, other.mismatch) == (job.id, True)
