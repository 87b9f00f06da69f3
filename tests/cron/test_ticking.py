"""What a look at the schedules tells, and what stops it."""

import logging
from datetime import timedelta

import pytest

from onefold.events import DuplicatesSuppressed, JobsEnqueued
from tests.cron.due import set_next_tick, set_zone
from tests.fixtures.colours import Clock, Coloured, Store
from tests.fixtures.place import Place

HOUR = timedelta(hours=1)
HOURLY = "0 * * * *"


@pytest.fixture
def place(store: Store) -> Place:
    """The database of the test, for what is done past our own calls."""
    return Place(store.url, store.schema)


async def test_the_claim_alone_decides(onefold: Coloured, clock: Clock, place: Place) -> None:
    await onefold.schedules.save("hourly", HOURLY, kind="report")
    clock.advance(HOUR)
    await onefold.deliveries.tick()
    set_next_tick(place, clock.now)
    again = await onefold.deliveries.tick()

    assert again.ticks == ()
    assert again.next_at == clock.now + HOUR
    assert len(await onefold.find()) == 1


async def test_a_tick_has_the_zone_of_its_schedule_if_this_machine_knows_it(
    onefold: Coloured, place: Place
) -> None:
    await onefold.schedules.save("nightly", "0 3 * * *", kind="report", tz="Europe/Berlin")
    (nightly,) = await onefold.schedules.find()
    set_zone(place, "Mars/Olympus")
    (broken,) = await onefold.schedules.find()

    assert f"{nightly.local(nightly.next_tick):%H:%M %Z}" == "03:00 CET"
    assert nightly.local(nightly.last_tick) is None
    assert f"{broken.local(broken.next_tick):%H:%M %Z}" == "02:00 UTC"


async def test_a_claim_that_has_expired_decides_too(
    onefold: Coloured, clock: Clock, place: Place
) -> None:
    await onefold.schedules.save(
        "hourly", HOURLY, kind="report", catch_up="all", catch_up_most=1000
    )
    clock.advance(HOUR)
    first = clock.now
    await onefold.deliveries.tick()
    await onefold.schedules.pause("hourly")
    clock.advance(timedelta(days=8))
    await onefold.schedules.resume("hourly")
    set_next_tick(place, first)
    again = await onefold.deliveries.tick()

    assert [tick.at for tick in again.ticks] == [first + n * HOUR for n in range(1, 8 * 24 + 1)]


async def test_one_that_cannot_be_read_keeps_nobody_waiting(
    onefold: Coloured, clock: Clock, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "onefold")
    await onefold.schedules.save("broken", HOURLY, kind="report")
    set_zone(place, "Mars/Olympus")
    await onefold.schedules.save("whole", HOURLY, kind="report")
    clock.advance(HOUR)
    first = await onefold.deliveries.tick()
    again = await onefold.deliveries.tick()

    assert [tick.schedule for tick in first.ticks] == ["whole"]
    assert [broken.schedule for broken in again.broken] == ["broken"]
    assert again.next_at == clock.now + HOUR
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "The schedule 'broken' cannot be read by this version and is skipped"
    ]


async def test_listeners_are_told(onefold: Coloured, clock: Clock) -> None:
    told: list[object] = []
    onefold.target.subscribe(told.append)
    await onefold.schedules.save("one", HOURLY, kind="report")
    await onefold.schedules.save("two", HOURLY, kind="report", unique_key="k", catch_up="all")
    clock.advance(2 * HOUR)
    await onefold.deliveries.tick()
    await onefold.schedules.run_now("two")

    assert told == [
        JobsEnqueued("report", "default", 2),
        DuplicatesSuppressed("report", "default", 1),
        DuplicatesSuppressed("report", "default", 1),
    ]
