"""Waiting for what a job returns: by whoever enqueued it, first or as a duplicate."""

import asyncio
import copy
import pickle
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from onefold import (
    Conflict,
    Enqueued,
    InvalidInput,
    JobFailed,
    JobNotFound,
    Onefold,
    ResultTimeout,
    Retention,
    Unique,
    UsageError,
)
from onefold.jobs.job_function import JobFunction
from tests.declared.stage import Stage
from tests.fixtures.colours import Store
from tests.fixtures.patience import LOCK
from tests.fixtures.place import Place

NOW = timedelta(0)
SOON = timedelta(milliseconds=20)
PATIENTLY = LOCK


@dataclass
class Receipt:
    total: Decimal


def declare(onefold: Onefold) -> JobFunction[[int], Receipt, [int], Receipt]:
    @onefold.job(store_result=True, unique=Unique(), unique_while="exists")
    def charge(order: int) -> Receipt:
        return Receipt(Decimal(order))

    return charge


async def test_a_result_comes_back_in_its_own_type_to_duplicates_too(stage: Stage) -> None:
    charge = declare(stage.onefold)
    first = await stage.enqueue(charge, 7)
    joined = await stage.enqueue(charge, 7)
    await stage.work()
    after = await stage.enqueue(charge, 7)

    assert joined.duplicate
    assert after.duplicate
    assert [await stage.result(one) for one in (first, joined, after)] == [Receipt(Decimal(7))] * 3


async def test_by_name_a_result_is_plain_json_or_none(stage: Stage) -> None:
    kept: Enqueued[Any] = await stage.onefold.aenqueue("add", {"left": 1})
    none: Enqueued[Any] = await stage.onefold.aenqueue("add")
    await stage.onefold.deliveries.afinish(await stage.take(), results={kept.id: {"sum": 1}})

    assert [await stage.result(one) for one in (kept, none)] == [{"sum": 1}, None]


async def test_a_result_that_was_not_kept_is_told_from_none(stage: Stage) -> None:
    @stage.onefold.job
    def forgets(number: int) -> int:
        return number

    @stage.onefold.job
    def returns_nothing() -> None: ...

    @stage.onefold.job(store_result=True)
    def maybe() -> int | None:
        return None

    number = await stage.enqueue(forgets, 1)
    nothing: Enqueued[Any] = await stage.enqueue(returns_nothing)
    kept: Enqueued[Any] = await stage.enqueue(maybe)
    await stage.work()

    assert [await stage.result(one) for one in (nothing, kept)] == [None, None]
    with pytest.raises(UsageError, match=r"its result was not stored.*store_result=True"):
        await stage.result(number)


async def test_who_waits_in_a_thread_is_told_too(stage: Stage) -> None:
    charge = declare(stage.onefold)
    answer = await stage.enqueue(charge, 7)
    waiting = asyncio.create_task(asyncio.to_thread(answer.result, timeout=PATIENTLY))
    await asyncio.sleep(0)
    await stage.work()

    assert await waiting == Receipt(Decimal(7))


async def test_a_dead_job_has_no_result(stage: Stage) -> None:
    answer = await stage.enqueue(declare(stage.onefold), 7)
    await stage.onefold.deliveries.abury(
        await stage.take(), reason="no card", error=ValueError("bad")
    )

    with pytest.raises(JobFailed, match=r"is dead \(no card\): .*ValueError: bad") as caught:
        await stage.result(answer)

    error = caught.value
    assert (error.job_id, error.kind, error.state, error.reason) == (
        answer.id, "charge", "dead", "no card",
    )  # fmt: skip
    assert error.error is not None
    assert error.error["message"] == "bad"
    assert isinstance(error, Conflict)


@pytest.mark.parametrize("patience", [NOW, SOON])
async def test_a_job_that_takes_too_long_goes_on(stage: Stage, patience: timedelta) -> None:
    answer = await stage.enqueue(declare(stage.onefold), 7)
    seconds: Any = 5

    with pytest.raises(InvalidInput, match="timeout needs a timedelta"):
        await stage.result(answer, seconds)
    with pytest.raises(ResultTimeout, match="is still ready after") as caught:
        await stage.result(answer, patience)

    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.job_id, caught.value.state, caught.value.status) == (
        answer.id, "ready", 408,
    )  # fmt: skip
    await stage.work()
    assert await stage.result(answer, NOW) == Receipt(Decimal(7))


async def test_a_job_whose_record_is_gone_has_no_result(stage: Stage) -> None:
    @stage.onefold.job(retention=Retention(completed=NOW))
    def brief() -> None: ...

    answer = await stage.enqueue(brief)
    await stage.work()

    with pytest.raises(JobNotFound):
        await stage.result(answer)


async def test_a_replayed_job_can_be_waited_for(stage: Stage) -> None:
    answer = await stage.enqueue(declare(stage.onefold), 7)
    await stage.onefold.deliveries.abury(await stage.take(), reason="no card")
    again: Enqueued[Any] = await stage.onefold.areplay(answer.id)
    await stage.work()

    assert await stage.result(again) == {"total": "7"}
    assert await stage.result(answer) == Receipt(Decimal(7))


def test_within_a_transaction_the_job_is_not_there_for_anybody_yet(store: Store) -> None:
    onefold = store.open()
    charge = declare(onefold)
    with Place(store.url, store.schema).transaction() as connection:
        answer = charge.within(connection).enqueue(7)

        with pytest.raises(JobNotFound, match="or is not committed yet"):
            answer.result(timeout=SOON)

    onefold.cancel(answer.id)

    with pytest.raises(JobFailed):
        answer.result(timeout=PATIENTLY)


def pickled(answer: Enqueued[Any]) -> Any:
    return pickle.loads(pickle.dumps(answer))


@pytest.mark.parametrize("made_again", [copy.copy, pickled])
def test_a_copy_does_not_know_whom_to_ask(store: Store, made_again: Any) -> None:
    answer = store.open().enqueue("email")

    twin = made_again(answer)

    assert twin == answer
    with pytest.raises(UsageError, match="does not know its database any more"):
        twin.result(timeout=NOW)
