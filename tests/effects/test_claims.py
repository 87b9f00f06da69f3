"""`run.once`, `run.lock`, `run.heartbeat`, and what else a run tells."""

import asyncio
import logging
from typing import Any

import pytest

from onefold import Busy, ConflictingOptions, LeaseLost, OutcomeUnknown
from tests.effects.deliveries import LEASE, Deliveries, Effect, Interrupted
from tests.fixtures.colours import Colour


async def once(run: Any, effect: Effect, **options: Any) -> Any:
    async with run.once("mail", **options) as claim:
        if claim.won:
            claim.result = effect(1)
    return claim.result


async def test_once_is_done_once_per_job(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()
    first = await once(run, effect)
    run = deliveries.again(run)

    assert first == await once(run, effect) == {"done": 1}
    deliveries.onefold.deliveries.finish([run.target.job])
    await once(deliveries.first(), effect)
    assert effect.count == 2


async def test_once_that_may_be_done_again_is_given_back_by_a_failure(
    deliveries: Deliveries,
) -> None:
    effect = Effect(fails=1)
    run = deliveries.first()
    with pytest.raises(ValueError, match="no luck"):
        await once(run, effect, takeover="rerun")

    assert await once(deliveries.again(run), effect) == {"done": 1}


@pytest.mark.parametrize("takeover", ["refuse", "rerun", "resume"])
async def test_f070_who_has_lost_the_job_claims_nothing_any_more(
    deliveries: Deliveries, takeover: Any
) -> None:
    """Though it does not know: not even what the one that has the job is at work on."""
    effect = Effect()
    stale = deliveries.first()
    run = deliveries.vanish()
    async with run.once("mail", takeover=takeover) as claim:
        with pytest.raises(LeaseLost, match="no longer held under fence 1"):
            await once(stale, effect, takeover=takeover)
        claim.result = effect(2)

    assert stale.target.lost
    assert await once(run, effect) == {"done": 2}
    assert effect.calls == [2]


@pytest.mark.parametrize("takeover", ["refuse", "rerun"])
async def test_f070_what_an_earlier_delivery_left_is_met_at_once_as_it_said(
    deliveries: Deliveries, takeover: Any
) -> None:
    """It is not busy: whoever was at it was this very job."""
    run = deliveries.first()
    with pytest.raises(Interrupted):
        async with run.once("mail", takeover=takeover):
            raise Interrupted

    again = once(deliveries.again(run), Effect())
    if takeover == "refuse":
        with pytest.raises(OutcomeUnknown):
            await again
    else:
        assert await again == {"done": 1}


async def test_once_is_busy_while_another_part_of_this_run_is_at_it(deliveries: Deliveries) -> None:
    run = deliveries.first()

    async with run.once("mail"):
        with pytest.raises(Busy):
            await once(run, Effect())


async def test_once_of_a_run_has_no_lease_of_its_own(deliveries: Deliveries) -> None:
    with pytest.raises(ConflictingOptions):
        await once(deliveries.first(), Effect(), lease=LEASE)


async def test_a_lock_is_the_one_that_everybody_knows(deliveries: Deliveries) -> None:
    run = deliveries.first()

    async with run.lock("nightly"):
        with pytest.raises(Busy):
            await asyncio.to_thread(deliveries.onefold.lock("nightly").acquire)


async def test_a_lock_is_lost_with_the_job(deliveries: Deliveries) -> None:
    run = deliveries.first()

    async with run.lock("nightly") as lock:
        lock.check()
        run.target.mark_lost()
        assert lock.lost
        with pytest.raises(LeaseLost):
            lock.check()
    with pytest.raises(LeaseLost):
        run.lock("nightly")


async def test_a_heartbeat_extends_the_lease(deliveries: Deliveries) -> None:
    run = deliveries.first()
    deliveries.clock.advance(LEASE / 2)

    assert await run.heartbeat() == deliveries.clock.now + LEASE
    deliveries.vanish()
    with pytest.raises(LeaseLost):
        await run.heartbeat()
    assert run.target.lost


async def test_a_run_tells_what_it_is(
    deliveries: Deliveries, caplog: pytest.LogCaptureFixture, colour: Colour
) -> None:
    run = deliveries.first().target
    assert (run.id, run.attempt, run.fence, run.tick) == (run.job.id, 1, 1, None)
    assert (run.deadline, run.lost, run.completed) == (None, False, False)

    with caplog.at_level(logging.INFO):
        run.log.info("charging %s", 7, extra={"order": 7})

    (record,) = [record for record in caplog.records if record.name == "onefold.run"]
    told: Any = record
    assert (told.job_id, told.kind, told.attempt, told.order) == (run.id, "work", 1, 7)
    assert record.getMessage() == "charging 7"
