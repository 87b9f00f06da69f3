"""Calls that must not be made twice and whose answer is lost: it happened, and the call raised."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import (
    ConflictingOptions,
    Defer,
    Done,
    Fixed,
    InvalidInput,
    NotDone,
    OutcomeUnknown,
    UsageError,
)
from onefold.model.failure import described
from tests.effects.deliveries import Deliveries, Effect, in_colour
from tests.fixtures.colours import Colour, Coloured, coroutine_function

AT_ONCE = Fixed(timedelta(0))
LOST = ConnectionResetError("no answer in time")

on_sqlite = pytest.mark.parametrize("dialect", ["sqlite"])
"""Where the database makes no difference."""


class Bank:
    """Pays, and loses its answer; may be asked, and cannot tell at first."""

    def __init__(self, *, pays: bool = True, silent: int = 0) -> None:
        self.calls: list[Any] = []
        self.asked: list[str] = []
        self._pays = pays
        self._silent = silent

    def pay(self, value: int = 7) -> str:
        self.calls.append(value)
        raise LOST

    def find(self, key: str) -> Any:
        self.asked.append(key)
        if len(self.asked) <= self._silent:
            return None
        return Done("receipt") if self._pays else NotDone()


class Way:
    """A step, or a block of `run.once`."""

    def __init__(self, name: str, colour: Colour) -> None:
        self.name = name
        self.colour = colour

    async def pay(self, run: Any, pay: Any, **options: Any) -> Any:
        verify = options.get("verify")
        if verify is not None and self.colour == "async":
            options["verify"] = coroutine_function(verify)
        if self.name == "step":
            return await run.using(unsafe=True, **options).step("pay", pay, 7)
        async with run.once("pay", **options) as claim:
            if claim.won:
                claim.result = pay(7)
        return claim.result


@pytest.fixture(params=["step", "once"])
def way(request: pytest.FixtureRequest, colour: Colour) -> Way:
    return Way(request.param, colour)


async def test_a_call_whose_answer_is_lost_is_unknown_and_not_made_again(
    deliveries: Deliveries, way: Way
) -> None:
    bank = Bank()
    run = deliveries.first()
    with pytest.raises(OutcomeUnknown, match="'pay'") as raised:
        await way.pay(run, bank.pay)

    assert not raised.value.verifiable
    assert raised.value.__context__ is LOST
    with pytest.raises(OutcomeUnknown):
        await way.pay(deliveries.again(run), bank.pay)
    assert bank.calls == [7]


async def test_verify_is_asked_in_the_same_attempt_and_finds_it_done(
    deliveries: Deliveries, way: Way
) -> None:
    bank = Bank()
    run = deliveries.first()

    assert await way.pay(run, bank.pay, verify=bank.find) == "receipt"
    assert await way.pay(deliveries.again(run), bank.pay, verify=bank.find) == "receipt"

    assert (bank.calls, len(bank.asked)) == ([7], 1)


async def test_what_verify_finds_not_done_fails_as_it_failed_and_is_tried_again(
    deliveries: Deliveries, way: Way
) -> None:
    bank = Bank(pays=False)
    run = deliveries.first()
    with pytest.raises(ConnectionResetError) as raised:
        await way.pay(run, bank.pay, verify=bank.find)
    assert raised.value is LOST

    effect = Effect()
    assert await way.pay(deliveries.again(run), effect, verify=bank.find) == {"done": 7}
    assert len(bank.asked) == 1


async def test_while_verify_cannot_tell_every_attempt_asks_it_again(
    deliveries: Deliveries, way: Way
) -> None:
    bank = Bank(silent=3)

    def down(key: str) -> Any:
        bank.find(key)
        raise ConnectionRefusedError

    run = deliveries.first()
    for verify in (bank.find, down, bank.find):
        with pytest.raises(OutcomeUnknown) as raised:
            await way.pay(run, bank.pay, verify=verify)
        assert raised.value.verifiable
        assert isinstance(raised.value.__cause__, ConnectionRefusedError) == (verify is down)
        run = deliveries.again(run)

    assert await way.pay(run, bank.pay, verify=bank.find) == "receipt"
    assert (bank.calls, len(bank.asked)) == ([7], 4)


@on_sqlite
async def test_a_verify_may_ask_to_come_back_later(deliveries: Deliveries, way: Way) -> None:
    def later(key: str) -> Any:
        raise Defer(timedelta(minutes=5))

    with pytest.raises(Defer):
        await way.pay(deliveries.first(), Bank().pay, verify=later)


def is_refused(error: BaseException) -> bool:
    return isinstance(error, ConnectionRefusedError)


@pytest.mark.parametrize(
    "declared",
    [ConnectionRefusedError, (KeyError, ConnectionRefusedError), is_refused],
    ids=["class", "classes", "function"],
)
@on_sqlite
async def test_an_exception_that_is_declared_not_done_gives_it_back_and_another_is_unknown(
    deliveries: Deliveries, way: Way, declared: Any
) -> None:
    effect = Effect(fails=1, error=ConnectionRefusedError)
    run = deliveries.first()
    with pytest.raises(ConnectionRefusedError):
        await way.pay(run, effect, not_done=declared)

    run = deliveries.again(run)
    assert await way.pay(run, effect, not_done=declared) == {"done": 7}
    with pytest.raises(OutcomeUnknown):
        await way.pay(deliveries.first(), Bank().pay, not_done=declared)


async def test_the_call_may_say_itself_that_it_was_not_done(
    deliveries: Deliveries, way: Way
) -> None:
    effect = Effect(fails=1, error=lambda: NotDone("the bank says: try again"))
    run = deliveries.first()
    with pytest.raises(NotDone, match="try again"):
        await way.pay(run, effect)

    assert await way.pay(deliveries.again(run), effect) == {"done": 7}


async def test_an_outcome_ends_the_run_as_it_says_and_the_call_stays_unknown(
    deliveries: Deliveries, way: Way
) -> None:
    """A Defer does not say that the bank has not paid."""
    bank, effect = Bank(), Effect(fails=1, error=lambda: Defer(timedelta(seconds=30)))
    run = deliveries.first()
    with pytest.raises(Defer):
        await way.pay(run, effect, verify=bank.find)
    assert bank.asked == []

    assert await way.pay(deliveries.again(run), effect, verify=bank.find) == "receipt"
    assert effect.count == 1


@on_sqlite
async def test_what_is_wrong_before_the_call_is_made_is_not_unknown(
    deliveries: Deliveries,
) -> None:
    effect = Effect()
    run = deliveries.first()
    with pytest.raises(InvalidInput):
        await run.using(unsafe=True).step("pay", effect, object())

    assert await deliveries.again(run).using(unsafe=True).step("pay", effect, 7) == {"done": 7}


async def test_a_step_that_is_tried_again_in_place_asks_verify_between(
    deliveries: Deliveries,
) -> None:
    bank = Bank(pays=False)
    careful = deliveries.first().using(unsafe=True, verify=bank.find, attempts=3, backoff=AT_ONCE)
    effect = Effect(fails=2, error=TimeoutError)

    assert await careful.step("pay", effect, 7) == {"done": 7}
    assert (effect.count, len(bank.asked)) == (3, 2)


async def test_an_unknown_step_shows_why_and_an_operator_settles_it(
    deliveries: Deliveries,
) -> None:
    bank = Bank()
    run = deliveries.first()
    with pytest.raises(OutcomeUnknown):
        await run.using(unsafe=True).step("pay", bank.pay)
    deliveries.onefold.deliveries.bury([run.target.job], reason="unknown")

    (step,) = deliveries.onefold.deliveries.steps(run.target.id)
    assert (step.state, step.error["message"]) == ("unknown", "no answer in time")
    deliveries.onefold.replay(run.target.id)
    run = deliveries.take()
    with pytest.raises(OutcomeUnknown) as caught:
        await run.using(unsafe=True).step("pay", bank.pay)
    assert "causes" not in described(caught.value)
    deliveries.onefold.deliveries.bury([run.target.job], reason="unknown")
    onefold = Coloured(deliveries.onefold, deliveries.colour)
    assert await onefold.deliveries.settle_step(run.target.id, "pay", result="receipt")
    assert not await onefold.deliveries.settle_step(run.target.id, "pay", result="another")
    assert not await onefold.deliveries.release_step(run.target.id, "nothing")
    deliveries.onefold.replay(run.target.id)
    assert await deliveries.take().using(unsafe=True).step("pay", bank.pay) == "receipt"


async def test_what_verify_finds_does_not_count_for_a_later_try(
    deliveries: Deliveries, colour: Colour
) -> None:
    """Another task of the run has paid since, and lost the answer: nothing is paid again."""
    bank = Bank()
    run = deliveries.first()
    with pytest.raises(OutcomeUnknown):
        await run.using(unsafe=True, key="o-7").step("pay", bank.pay, 7)
    run = deliveries.again(run)
    found: list[Any] = [NotDone(), None]

    def find(key: str) -> NotDone:
        other = run.target.using(unsafe=True, key="o-7", verify=lambda _: found.pop(0))
        with pytest.raises(OutcomeUnknown):
            other.step("pay", bank.pay, 7)
        return NotDone()

    verify = coroutine_function(find) if colour == "async" else find
    with pytest.raises(OutcomeUnknown):
        await run.using(unsafe=True, key="o-7", verify=verify).step("pay", bank.pay, 7)
    assert (bank.calls, found) == ([7, 7], [])


async def test_a_handler_that_catches_it_and_asks_again_is_told_the_same(
    deliveries: Deliveries,
) -> None:
    bank = Bank(silent=1)
    careful = deliveries.first().using(unsafe=True, verify=bank.find)
    with pytest.raises(OutcomeUnknown):
        await careful.step("pay", bank.pay)

    assert await careful.step("pay", bank.pay) == "receipt"
    assert bank.calls == [7]


@on_sqlite
async def test_a_result_that_verify_finds_and_that_cannot_be_stored_leaves_it_unknown(
    deliveries: Deliveries, way: Way
) -> None:
    bank = Bank()

    def unstorable(key: str) -> Done:
        return Done(object())

    run = deliveries.first()
    with pytest.raises(InvalidInput):
        await way.pay(run, bank.pay, verify=unstorable)
    assert await way.pay(deliveries.again(run), bank.pay, verify=bank.find) == "receipt"


@on_sqlite
async def test_not_done_is_classes_for_a_call_that_is_not_made_again(
    deliveries: Deliveries, way: Way
) -> None:
    run = deliveries.first()
    for wrong in (7, (str,)):
        with pytest.raises(InvalidInput) as raised:
            await way.pay(run, Effect(), not_done=wrong)
        assert raised.value.field == "not_done"
    for takeover in ("rerun", "resume"):
        with pytest.raises(ConflictingOptions, match="not_done"):
            await run.once("pay", takeover=takeover, not_done=KeyError).__aenter__()
    safe: list[dict[str, Any]] = [{"not_done": KeyError}, {"verify": Bank().find}]
    for options in safe:
        with pytest.raises(ConflictingOptions, match="unsafe=True") as refused:
            run.using(**options)
        assert [refused.value.field] == list(options)


@pytest.mark.parametrize("outer", ["step", "transact"])
@on_sqlite
async def test_an_unsafe_step_is_not_a_part_of_one_that_is_done_again(
    deliveries: Deliveries, outer: str
) -> None:
    run, effect = deliveries.first(), Effect()
    careful = run.using(unsafe=True)

    async def pay(*_: Any) -> Any:
        return await careful.step("pay", effect)

    part = in_colour(pay, run.colour)
    with pytest.raises(UsageError, match="'order' is running, and may be done again"):
        await getattr(run, outer)("order", part)
    assert effect.count == 0
    # What is not done again has unsafe parts.
    assert await careful.step("order", part) == {"done": None}


@on_sqlite
async def test_what_the_call_says_is_unknown_is_retried_where_verify_finds_it_not_done(
    deliveries: Deliveries, way: Way
) -> None:
    bank = Bank(pays=False)
    effect = Effect(fails=1, error=lambda: OutcomeUnknown(key="pay"))
    run = deliveries.first()
    with pytest.raises(OutcomeUnknown) as raised:
        await way.pay(run, effect, verify=bank.find)
    assert raised.value.verifiable

    assert await way.pay(deliveries.again(run), effect, verify=bank.find) == {"done": 7}
