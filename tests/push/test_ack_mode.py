"""Ack mode: the receiver has the job, and says later how it went."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from onefold import Onefold
from onefold.operations.maintenance import begin_chore
from onefold.testing.clock import Clock
from tests.fixtures.colours import Store
from tests.push.receiver import Received, Receiver, says
from tests.push.stage import has, is_held, job_of, make_queue, publish, pushing
from tests.worker.stage import until

DAY = 24 * 60 * 60 * 1_000_000


async def test_an_ack_that_is_late_is_seen_to_before_the_next_round_of_chores(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    # As if somebody had done it just now: the chores of this one leave it alone.
    assert await onefold.context.database.atransact(  # pyright: ignore[reportPrivateUsage]
        lambda sql: begin_chore(sql, "rescue", every=DAY)
    )
    async with Receiver(says(202)) as receiver, pushing(onefold) as courier:
        await make_queue(onefold, receiver, mode="ack", ack_timeout=timedelta(seconds=30))
        (job_id,) = await publish(onefold)
        for fence in (1, 2, 3):
            await until(partial(has, onefold, job_id, state="awaiting"))
            assert (await job_of(onefold, job_id)).fence == fence
            clock.advance(timedelta(seconds=30))
            await until(partial(has, onefold, job_id, fence=fence + 1))
            courier.changed()
        await until(partial(has, onefold, job_id, state="awaiting"))
        await onefold.deliveries.aacknowledge(job_id)

    *late, done = await onefold.deliveries.aattempts(job_id)
    assert [(each.error or {})["type"] for each in late] == ["AckTimeout"] * 3
    assert done.outcome == "completed"


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("mode", ["ack", "standard"])
async def test_an_ack_while_the_push_is_open_is_the_last_word(
    onefold: Onefold, status: int, mode: str
) -> None:
    async def acks(received: Received, writer: asyncio.StreamWriter) -> None:
        await onefold.deliveries.aacknowledge(str(received.envelope["id"]), result="early")
        await says(status)(received, writer)
        answered.set()

    answered = asyncio.Event()

    async with Receiver(acks) as receiver:
        await make_queue(onefold, receiver, mode=mode)
        async with pushing(onefold):
            (job_id,) = await publish(onefold)
            await answered.wait()

    job = await job_of(onefold, job_id)
    assert (job.state, job.result, job.fence) == ("completed", "early", 1)
    assert len(receiver.received) == 1


@pytest.mark.parametrize("why", ["deferred", "backpressure"])
async def test_a_hold_that_the_receiver_asked_for_ends_with_the_ack_of_the_probe(
    store: Store, why: str
) -> None:
    clock = Clock()
    onefold, other = store.open(clock=clock), store.open(clock=clock)
    manners = [says(202)]
    if why == "backpressure":
        manners.insert(0, says(429, ("Retry-After", "30")))
    async with (
        Receiver(*manners) as receiver,
        pushing(onefold) as courier,
        pushing(other) as another,
    ):
        await make_queue(onefold, receiver, mode="ack")
        (first,) = await publish(onefold)
        if why == "deferred":
            await until(lambda: has(onefold, first, state="awaiting"))
            after = timedelta(seconds=30)
            await onefold.deliveries.adefer_job(first, after=after, hold_queue=True)
        await until(lambda: is_held(onefold, why))
        ids = [first, *await publish(onefold, 5)]
        for pushes in (2, 3):
            clock.advance(timedelta(seconds=30))
            courier.changed()
            another.changed()
            probe = await _awaiting(onefold, ids)
            assert await is_held(onefold, why)
            assert len(receiver.received) == pushes
            if pushes == 2:
                # A probe that was not acknowledged opens nothing, and another one goes.
                await onefold.deliveries.anack(probe, retryable=False)
            else:
                await onefold.deliveries.aacknowledge(probe)
            ids.remove(probe)
        assert not await is_held(onefold, why)
        for job_id in ids:
            await until(partial(has, onefold, job_id, state="awaiting"))
            await onefold.deliveries.aacknowledge(job_id)


async def _awaiting(onefold: Onefold, ids: list[str]) -> str:
    """The one job that waits for its ack."""
    found: list[str] = []

    async def has_been_parked() -> bool:
        found[:] = [job_id for job_id in ids if await has(onefold, job_id, state="awaiting")]
        return bool(found)

    await until(has_been_parked)
    (job_id,) = found
    return job_id


async def test_an_endpoint_that_was_down_is_open_again_when_it_answers(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    async with (
        Receiver(*[says(500)] * 5, says(202)) as receiver,
        pushing(onefold) as courier,
    ):
        await make_queue(onefold, receiver, mode="ack")
        (job_id,) = await publish(onefold)
        await until(lambda: is_held(onefold, "circuit"))
        await until(lambda: has(onefold, job_id, state="retrying"))
        clock.advance(timedelta(seconds=1))
        courier.changed()
        await until(lambda: has(onefold, job_id, state="awaiting"))
        assert not await is_held(onefold, "circuit")
        await onefold.deliveries.aacknowledge(job_id)


@pytest.mark.parametrize("mode", ["ack", "standard"])
async def test_an_endpoint_that_is_cut_off_at_work_gets_no_delivery_twice(
    onefold: Onefold, mode: str
) -> None:
    async def acks_and_is_cut_off(received: Received, writer: asyncio.StreamWriter) -> None:
        if received.envelope["payload"] == {"number": 1} and received.envelope["fence"] == 1:
            if mode == "ack":
                await onefold.deliveries.aacknowledge(str(received.envelope["id"]))
            writer.close()
        else:
            await says(200)(received, writer)

    async with Receiver(acks_and_is_cut_off) as receiver, pushing(onefold):
        await make_queue(onefold, receiver, mode=mode, concurrency=1)
        first, second = await publish(onefold, 2)
        if mode == "ack":
            await until(lambda: has(onefold, first, state="awaiting"))
            await onefold.deliveries.aacknowledge(first)
        await until(lambda: has(onefold, second, state="completed"))

    deliveries = [
        (received.envelope["id"], received.envelope["fence"]) for received in receiver.received
    ]
    again = [] if mode == "ack" else [(second, 2)]
    assert deliveries == [(first, 1), (second, 1), *again]
    outcomes = [attempt.outcome for attempt in await onefold.deliveries.aattempts(second)]
    assert outcomes == (["completed"] if mode == "ack" else ["retried", "completed"])
