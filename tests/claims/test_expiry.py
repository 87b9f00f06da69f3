"""What the sweep leaves and takes, and fences that grow whatever became of a row."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import NewJob
from onefold.claims import Won
from tests.fixtures.colours import Clock, Coloured, Store
from tests.fixtures.place import Place

MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def stored(store: Store) -> list[tuple[Any, ...]]:
    """Surface and key of every claim that is stored."""
    place = Place(store.url, store.schema)
    return place.rows("select surface, key from {claim} order by surface, key")


async def settled(onefold: Coloured, key: str, **options: Any) -> Any:
    answer = await onefold.claim("import", key, **options)
    assert isinstance(answer, Won)
    await onefold.keys.settle(answer.claim, key)
    return answer.claim


async def test_the_sweep_forgets_a_released_key_after_a_day(
    onefold: Coloured, store: Store, clock: Clock
) -> None:
    answer = await onefold.claim("import", "k")
    await onefold.keys.release(answer.claim)

    clock.advance(DAY - MICROSECOND)
    assert await onefold.deliveries.sweep() == 0
    clock.advance(MICROSECOND)
    assert await onefold.deliveries.sweep() == 1

    assert stored(store) == []


async def test_the_sweep_steps_over_publish_keys_of_living_jobs(
    onefold: Coloured, store: Store, clock: Clock
) -> None:
    living = [NewJob("k", idempotency_key=f"{n:04}", idempotency_for=SECOND) for n in range(1200)]
    await onefold.enqueue_many(living)
    clock.advance(MICROSECOND)
    await settled(onefold, "over", retention=SECOND)
    clock.advance(DAY)

    assert await onefold.deliveries.sweep() == 1

    assert stored(store) == [("publish", f"{n:04}") for n in range(1200)]


@pytest.mark.parametrize("end", ["release", "expire", "force", "sweep"])
async def test_f001_the_fence_of_a_key_grows_whatever_happened_to_its_row(
    onefold: Coloured, store: Store, clock: Clock, end: str
) -> None:
    fences: list[int] = []
    for _ in range(3):
        answer = await onefold.claim("import", "k", retention=SECOND)
        fences.append(answer.claim.fence)
        match end:
            case "release":
                await onefold.keys.release(answer.claim)
            case "force":
                await onefold.keys.force_release("import", "k")
            case _:
                await onefold.keys.settle(answer.claim, "done")
                clock.advance(SECOND)
        if end == "sweep":
            assert await onefold.deliveries.sweep() == 1

    assert fences == sorted(set(fences))


async def test_f001_the_fence_grows_over_a_restart_with_a_clock_that_went_back(
    store: Store, clock: Clock
) -> None:
    fences: list[int] = []
    for _ in range(3):
        with store.open(clock=clock) as process:
            answer = process.claim("import", "k")
            assert isinstance(answer, Won)
            fences.append(answer.claim.fence)
            process.keys.release(answer.claim)
        clock.advance(-DAY)

    assert fences == sorted(set(fences))
