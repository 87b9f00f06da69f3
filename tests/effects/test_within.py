"""`run.within()`, and the warning about an enqueue that is not part of the open transaction."""

import asyncio
import logging
import warnings
from typing import Any

import pytest

from onefold import NewJob, Onefold, OutsideTransactionWarning, UsageError
from tests.effects.deliveries import ColouredRun, Deliveries, in_colour
from tests.fixtures.colours import Colour, Coloured, Store


def within(run: ColouredRun, colour: Colour) -> Coloured:
    return Coloured(run.target.within(), colour)


def kinds(onefold: Onefold) -> list[str]:
    return sorted(job.kind for job in onefold.find() if job.kind != "work")


async def test_what_is_enqueued_within_is_committed_with_the_job(
    deliveries: Deliveries, colour: Colour
) -> None:
    run = deliveries.first()

    async with run.transaction():
        await within(run, colour).enqueue("mail")
        await within(run, colour).enqueue_many([NewJob("call")])

    assert run.target.completed
    assert kinds(deliveries.onefold) == ["call", "mail"]


async def test_within_is_for_the_function_of_transact_too(
    deliveries: Deliveries, colour: Colour
) -> None:
    run = deliveries.first()

    async def enqueue(tx: Any) -> None:
        await within(run, colour).enqueue("mail")

    await run.transact("mail", in_colour(enqueue, colour))

    assert kinds(deliveries.onefold) == ["mail"]


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_within_needs_an_open_transaction(deliveries: Deliveries) -> None:
    run = deliveries.first()

    with pytest.raises(UsageError, match=r"inside of the block of run\.transaction\(\)"):
        run.target.within()
    async with run.transaction():
        pass
    with pytest.raises(UsageError, match="No transaction"):
        run.target.within()


async def test_a_plain_enqueue_inside_is_warned_of(
    deliveries: Deliveries, colour: Colour, store: Store
) -> None:
    """By this object, or by another one of the same database; warnings are errors here."""
    run, declared = deliveries.first(), deliveries.onefold.job(_mail)
    here, other = Coloured(deliveries.onefold, colour), Coloured(store.open(), colour)
    shop, job = Coloured(deliveries.onefold.tenant("shop"), colour), Coloured(declared, colour)

    plain_ones: list[Any] = [
        lambda: here.enqueue("mail"),
        lambda: here.enqueue_many([NewJob("mail")]),
        lambda: other.enqueue("mail"),
        lambda: shop.enqueue("mail"),
        job.enqueue,
    ]

    async with run.transaction():
        for plain in plain_ones:
            with pytest.raises(OutsideTransactionWarning, match=r"run\.within\(\)"):
                await plain()

    assert kinds(deliveries.onefold) == []
    await here.enqueue("mail")
    assert kinds(deliveries.onefold) == ["mail"]


def _mail() -> None:
    """A job."""


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("dialect", ["postgres"])
async def test_it_is_stored_all_the_same_and_told_once_per_place(
    deliveries: Deliveries, colour: Colour, caplog: pytest.LogCaptureFixture
) -> None:
    run, here = deliveries.first(), deliveries.onefold

    async def enqueue_three() -> None:
        for _ in range(3):
            # Called here: the warning names this file.
            if colour == "sync":
                here.enqueue("mail")
            else:
                await here.aenqueue("mail")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        async with run.transaction():
            await enqueue_three()

    assert kinds(here) == ["mail"] * 3
    assert [(warning.category, warning.filename) for warning in told] == [
        (OutsideTransactionWarning, __file__)
    ]
    (line,) = [record for record in caplog.records if "once.within()" in record.getMessage()]
    assert (line.name, line.levelno) == ("onefold", logging.WARNING)
    assert f"{__file__}, line {told[0].lineno}" in line.getMessage()


@pytest.mark.parametrize("colour", ["async"])
@pytest.mark.parametrize("dialect", ["postgres"])
async def test_calls_that_are_tasks_by_themselves_are_told_by_kind(
    deliveries: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    run, here = deliveries.first(), deliveries.onefold

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        async with run.transaction():
            await asyncio.gather(*map(here.aenqueue, ["gathered 1", "gathered 2", "gathered 2"]))

    assert len(told) == caplog.text.count("The enqueue of 'gathered ") == 2


async def test_a_transaction_on_another_database_inside_hides_nothing(
    deliveries: Deliveries, colour: Colour, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = deliveries.first()
    with Onefold(f"sqlite:///{tmp_path_factory.mktemp('other')}/other.db") as other:
        other.migrate()
        other.enqueue("work")
        inner = deliveries.take(other)
        async with run.transaction(), inner.transaction():
            with pytest.raises(OutsideTransactionWarning):
                await Coloured(deliveries.onefold, colour).enqueue("plain")
            await within(run, colour).enqueue("mail")
            await within(inner, colour).enqueue("call")

        assert (kinds(deliveries.onefold), kinds(other)) == (["mail"], ["call"])
