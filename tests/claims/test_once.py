"""`once` under a lease: as a context manager, in both colours, on both databases."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from onefold import Busy, ConflictingOptions, InvalidInput, LeaseLost, TooOld
from onefold.claims import Unknown, Won
from tests.fixtures.colours import Clock, Coloured, Store

MINUTE = timedelta(minutes=1)


async def test_the_first_runs_and_the_second_gets_its_result(onefold: Coloured) -> None:
    async with onefold.once("import", "sha") as claim:
        assert claim.won
        assert not claim.replayed
        assert claim.result is None
        claim.result = {"rows": 3}

    async with onefold.once("import", "sha") as again:
        assert again.replayed
        assert not again.won
        assert again.result == {"rows": 3}
        assert again.fence is None
        assert again.guarantee is None


async def test_a_cancelled_task_leaves_the_key_held_for_its_takeover_to_decide(
    store: Store, clock: Clock
) -> None:
    onefold = store.open(clock=clock)
    entered = asyncio.Event()

    async def work() -> None:
        async with onefold.once("import", "sha"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert isinstance(await onefold.aclaim("import", "sha"), Busy)


async def test_f014_f017_a_key_at_work_is_busy_at_once_inside_the_body_too(
    onefold: Coloured,
) -> None:
    async with onefold.once("import", "sha", lease=MINUTE) as outer:
        with pytest.raises(Busy) as caught:
            async with onefold.once("import", "sha"):
                pytest.fail("two at once")
        outer.result = "outer"

    assert (caught.value.retry_after, caught.value.key) == (MINUTE, "sha")
    assert (await onefold.claim("import", "sha")).result == "outer"


async def test_a_skipped_attempt_settles_and_releases_nothing(onefold: Coloured) -> None:
    async with onefold.once("import", "sha") as claim:
        with pytest.raises(ZeroDivisionError):
            async with onefold.once("import", "sha", busy="skip"):
                raise ZeroDivisionError
        # A body that settles by itself is not settled again.
        await onefold.keys.settle(claim.claim, "by hand")
        claim.result = "by hand"

    assert (await onefold.claim("import", "sha")).result == "by hand"


async def test_an_attempt_that_lost_its_key_cannot_settle(onefold: Coloured, clock: Clock) -> None:
    with pytest.raises(LeaseLost):  # noqa: PT012 - the body is what fails
        async with onefold.once("import", "sha", lease=MINUTE, takeover="rerun") as late:
            clock.advance(MINUTE)
            async with onefold.once("import", "sha") as current:
                assert current.won
                current.result = "current"
            late.result = "late"

    assert (await onefold.claim("import", "sha")).result == "current"


async def test_a_result_that_cannot_be_stored_leaves_the_outcome_unknown(
    onefold: Coloured, clock: Clock
) -> None:
    """The effect has happened, so the key must not be given back for another run."""
    with pytest.raises(InvalidInput) as caught:
        async with onefold.once("import", "sha", lease=MINUTE) as claim:
            claim.result = object()

    assert caught.value.field == "result"
    (note,) = caught.value.__notes__
    assert "'sha' stays unsettled until its lease ends; then its takeover decides" in note
    clock.advance(MINUTE)
    assert isinstance(await onefold.claim("import", "sha"), Unknown)


async def test_f021_a_third_party_gets_a_key_that_every_attempt_derives_alike(
    onefold: Coloured,
) -> None:
    keys: list[str] = []
    for _ in range(2):
        with pytest.raises(ConnectionError):  # noqa: PT012 - the body is what fails
            async with onefold.once("charge", "order:7") as claim:
                keys.append(claim.derived("stripe"))
                assert claim.derived("mail") != claim.derived("stripe")
                raise ConnectionError

    async with onefold.once("charge", "order:8") as other:
        assert other.derived("stripe") not in keys
    assert keys[0] == keys[1]


async def test_f035_a_crash_after_an_external_effect_is_met_by_the_stated_policy(
    onefold: Coloured, clock: Clock
) -> None:
    keys: dict[str, str] = {}
    for takeover in ("rerun", "refuse"):
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the body is what fails
            async with onefold.once("charge", takeover, lease=MINUTE, takeover=takeover) as claim:
                keys[takeover] = claim.derived("stripe")
                raise KeyboardInterrupt
    clock.advance(MINUTE)

    async with onefold.once("charge", "rerun") as again:
        assert again.won
        assert again.derived("stripe") == keys["rerun"], "the same key for the third party"
    assert isinstance(await onefold.claim("charge", "refuse"), Unknown), "held until somebody knows"


async def test_f036_a_message_older_than_the_ledger_remembers_is_refused(
    onefold: Coloured, clock: Clock
) -> None:
    issued = clock.now
    async with onefold.once("inbox", "m1", retention=MINUTE, issued_at=issued):
        pass
    clock.advance(MINUTE)
    await onefold.deliveries.sweep()

    with pytest.raises(TooOld) as caught:
        async with onefold.once("inbox", "m1", retention=MINUTE, issued_at=issued):
            pytest.fail("silently run again")

    assert caught.value.key == "m1"
    with pytest.raises(ConflictingOptions) as refused:
        async with onefold.once("inbox", "m1", issued_at=clock.now):
            pytest.fail("nothing to compare with")
    assert refused.value.field == "issued_at"


async def test_f043_an_effect_outside_the_transaction_is_not_called_exactly_once(
    onefold: Coloured,
) -> None:
    labels: set[str] = set()
    for takeover in ("rerun", "resume", "refuse", None):
        async with onefold.once("inbox", f"{takeover}", takeover=takeover) as claim:
            labels.add(claim.guarantee)

    assert labels == {"at least once", "at most once"}


async def test_bad_options_are_refused_by_name(onefold: Coloured) -> None:
    bad: list[tuple[str, dict[str, Any]]] = [
        ("busy", {"busy": "wait"}),
        ("busy", {"busy": []}),
        ("bussy", {"bussy": "skip"}),
        ("verify", {"verify": "yes"}),
        ("takeover", {"takeover": []}),
        ("wait", {"wait": timedelta(seconds=-1)}),
        ("wait", {"wait": 5}),
        ("lease", {"lease": timedelta(0)}),
        ("takeover", {"takeover": "hope"}),
        # A block needs a key of its own.
        ("key", {"key": None}),
        ("key", {"key": lambda: "sha"}),
    ]
    for field, options in bad:
        with pytest.raises(InvalidInput) as caught:
            async with onefold.once("import", **{"key": "sha", **options}):
                pytest.fail(f"claimed with {options}")
        assert caught.value.field == field, options

    assert isinstance(await onefold.claim("import", "sha"), Won)
