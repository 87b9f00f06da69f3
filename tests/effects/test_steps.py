"""Steps: done once, remembered, compared, refused."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pydantic
import pytest

from onefold import (
    Busy,
    Defer,
    Fixed,
    InvalidInput,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    StepFailed,
    StepsChanged,
    UsageError,
)
from onefold.runtime import Pause
from tests.effects.deliveries import Deliveries, Effect, Interrupted, in_colour
from tests.fixtures.colours import Colour

AT_ONCE = Fixed(timedelta(0))


@dataclass
class Receipt:
    id: UUID
    amount: Decimal
    at: datetime


RECEIPT = Receipt(UUID(int=7), Decimal("9.90"), datetime(2026, 1, 1, tzinfo=UTC))


async def test_f050_a_step_that_is_over_is_not_done_again(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()

    first = await run.step("charge", effect, 7)
    again = await deliveries.again(run).step("charge", effect, 7)

    assert first == again == {"done": 7}
    assert effect.calls == [7]


class Paid(pydantic.BaseModel, strict=True):
    at: datetime
    by: str = pydantic.Field(alias="paidBy")


async def test_f050_a_result_is_what_its_function_says_in_the_first_run_and_in_a_rerun(
    deliveries: Deliveries,
) -> None:
    paid = Paid(at=datetime(2026, 1, 1, tzinfo=UTC), paidBy="Ada")

    def issue() -> Receipt:
        return RECEIPT

    def pair() -> tuple[int, str]:
        return 1, "a"

    def pay(_: list[Paid]) -> Paid:
        return paid

    def pay_all() -> dict[str, list[Paid]]:
        return {"all": [paid]}

    run = deliveries.first()
    for _ in range(2):
        assert await run.step("issue", issue) == RECEIPT
        assert await run.step("pair", pair) == (1, "a")
        assert await run.step("pay", pay, [paid]) == paid
        assert await run.step("pay all", pay_all) == {"all": [paid]}
        run = deliveries.again(run)


async def test_f053_a_step_that_fails_is_tried_again_in_place(deliveries: Deliveries) -> None:
    effect = Effect(fails=2)
    run = deliveries.first()

    result = await run.using(attempts=3, backoff=AT_ONCE).step("charge", effect, 7)

    assert result == {"done": 7}
    assert effect.count == 3
    (step,) = deliveries.onefold.deliveries.steps(run.target.id)
    assert (step.state, step.attempts, step.error) == ("finished", 3, None)


async def test_f053_a_failure_is_not_final_and_its_attempts_are_counted_over_reruns(
    deliveries: Deliveries,
) -> None:
    effect = Effect(fails=2)
    run = deliveries.first()

    for attempt in (1, 2):
        with pytest.raises(ValueError, match="no luck"):
            await run.step("charge", effect, 7)
        (step,) = deliveries.onefold.deliveries.steps(run.target.id)
        assert (step.state, step.attempts) == ("retrying", attempt)
        assert step.error["message"] == "no luck"
        run = deliveries.again(run)

    deliveries.onefold.deliveries.bury([run.target.job], reason="enough")
    assert deliveries.onefold.deliveries.steps(run.target.id)[0].state == "failed"
    deliveries.onefold.replay(run.target.id)
    run = deliveries.take()
    assert await run.step("charge", effect, 7) == {"done": 7}
    assert deliveries.onefold.deliveries.steps(run.target.id)[0].attempts == 3


async def test_f053_an_outcome_of_the_run_is_no_failure_of_the_step(deliveries: Deliveries) -> None:
    effect = Effect(fails=9, error=lambda: Defer(timedelta(seconds=30)))
    run = deliveries.first()

    with pytest.raises(Defer):
        await run.using(attempts=3).step("charge", effect, 7)

    assert effect.count == 1
    assert deliveries.onefold.deliveries.steps(run.target.id)[0].state == "retrying"


async def test_f054_a_final_failure_is_raised_again_as_it_was(deliveries: Deliveries) -> None:
    effect = Effect(fails=9, error=lambda: KeyError("card", 402))
    run = deliveries.first()
    careful = run.using(attempts=2, backoff=AT_ONCE)
    with pytest.raises(KeyError):
        await careful.step("charge", effect, 7)

    with pytest.raises(KeyError) as raised:
        await deliveries.again(run).step("charge", effect, 7)

    assert raised.value.args == ("card", 402)
    assert "earlier attempt" in raised.value.__notes__[0]
    assert effect.count == 2
    assert deliveries.onefold.deliveries.steps(run.target.id)[0].state == "failed"


def of_a_local_type() -> Exception:
    class CardError(Exception):
        pass

    return CardError("declined")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (of_a_local_type(), r"CardError: declined\."),
        (ValueError(datetime(2026, 1, 1, tzinfo=UTC)), "ValueError"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "UnicodeDecodeError"),
    ],
    ids=["a type that cannot be had", "arguments that are no JSON", "bytes"],
)
async def test_f054_a_failure_that_cannot_be_rebuilt_is_wrapped(
    deliveries: Deliveries, error: Exception, told: str
) -> None:
    effect = Effect(fails=9, error=lambda: error)
    run = deliveries.first()
    with pytest.raises(type(error)):
        await run.using(attempts=1).step("charge", effect, 7)

    with pytest.raises(StepFailed, match=f"{told}.* Replay .* fresh=True") as raised:
        await deliveries.again(run).step("charge", effect, 7)

    assert raised.value.step == "charge"


async def test_f055_another_step_at_the_same_place_is_refused(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()
    await run.step("reserve", effect, 1)
    await run.step("charge", effect, 2)

    run = deliveries.again(run)
    await run.step("reserve", effect, 1)
    with pytest.raises(StepsChanged, match=r"'refund'.*'charge'.*fresh=True") as raised:
        await run.step("refund", effect, 2)

    assert (raised.value.requested, raised.value.expected) == ("refund", "charge")
    assert effect.calls == [1, 2]


async def test_f055_after_a_step_that_is_tried_again_the_way_may_be_another(
    deliveries: Deliveries,
) -> None:
    """The first run went on with what to do about a failure; the second has none."""
    charge, effect = Effect(fails=1), Effect()
    run = deliveries.first()
    with pytest.raises(ValueError, match="no luck"):
        await run.step("charge", charge)
    await run.step("apologise", effect)

    run = deliveries.again(run)
    await run.step("charge", charge)
    await run.step("mail", effect)

    assert (charge.count, effect.count) == (2, 2)


async def test_f056_steps_of_one_name_are_told_apart_by_their_number(
    deliveries: Deliveries,
) -> None:
    effect = Effect()
    run = deliveries.first()
    first = [await run.step("mail", effect, number) for number in range(3)]
    run = deliveries.again(run)

    assert [await run.step("mail", effect, number) for number in range(3)] == first
    assert effect.count == 3
    labels = [step.label for step in deliveries.onefold.deliveries.steps(run.target.id)]
    assert labels == ["mail", "mail#2", "mail#3"]


@pytest.mark.parametrize("error", [ValueError, Interrupted])
async def test_f056_who_asks_again_for_a_step_that_failed_means_that_step(
    deliveries: Deliveries, error: Any
) -> None:
    """In a loop, say: a rerun, where the first try finds the result, must not do it again."""
    effect = Effect(fails=1, error=error)

    async def charge(run: Any) -> Any:
        while True:
            try:
                return await run.step("charge", effect, 7)
            except error:
                continue

    run = deliveries.first()
    first = await charge(run)
    run = deliveries.again(run)

    assert await charge(run) == first
    assert effect.count == 2
    assert [step.label for step in deliveries.onefold.deliveries.steps(run.target.id)] == ["charge"]


async def test_an_unsafe_step_that_was_interrupted_is_unknown_in_the_same_run_too(
    deliveries: Deliveries,
) -> None:
    effect = Effect(fails=1, error=Interrupted)  # type: ignore[arg-type]
    run = deliveries.first().using(unsafe=True)
    with pytest.raises(Interrupted):
        await run.step("charge", effect)

    with pytest.raises(OutcomeUnknown, match="charge"):
        await run.step("charge", effect)
    assert effect.count == 1


async def test_f056_steps_with_keys_follow_the_data(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()
    for order in ("a", "b"):
        await run.using(key=order).step("mail", effect, order)

    run = deliveries.again(run)
    for order in ("new", "b", "a"):
        assert await run.using(key=order).step("mail", effect, order) == {"done": order}

    assert effect.calls == ["a", "b", "new"]


async def test_f057_a_step_with_other_arguments_is_refused(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()
    await run.using(key="order:7").step("charge", effect, 7)

    with pytest.raises(KeyReused, match=r"charge\[order:7\]"):
        await deliveries.again(run).using(key="order:7").step("charge", effect, 8)

    assert effect.calls == [7]


async def test_f057_arguments_that_cannot_be_compared_are_refused_before_anything_is_done(
    deliveries: Deliveries,
) -> None:
    effect = Effect()
    run = deliveries.first()

    with pytest.raises(InvalidInput, match=r"step 'charge' cannot be compared.*without arguments"):
        await run.step("charge", effect, object())

    assert effect.count == 0


async def test_f059_time_and_chance_are_recorded(deliveries: Deliveries) -> None:
    run = deliveries.first()
    first = (await run.now(), await run.uuid(), await run.random(), await run.now())
    deliveries.clock.advance(timedelta(seconds=5))
    run = deliveries.again(run)

    assert (await run.now(), await run.uuid(), await run.random(), await run.now()) == first
    assert await run.now() == first[0] + timedelta(seconds=5)
    assert isinstance(first[1], UUID)


@pytest.mark.parametrize("unsafe", [False, True])
async def test_f060_a_result_that_cannot_be_stored_does_not_count_as_done(
    deliveries: Deliveries, *, unsafe: bool
) -> None:
    effect = Effect()
    run = deliveries.first()

    with pytest.raises(InvalidInput) as raised:
        await run.using(unsafe=unsafe).step("open", lambda: (effect(), object()))

    assert raised.value.field == "result"
    assert "'open' was done, but its result is not stored" in raised.value.__notes__[0]
    again = deliveries.again(run).using(unsafe=unsafe).step("open", effect)
    if unsafe:
        with pytest.raises(OutcomeUnknown):
            await again
    else:
        assert await again == {"done": None}
    assert effect.count == (1 if unsafe else 2)


async def test_f061_a_result_that_is_too_large_is_refused_and_not_cut_off(
    deliveries: Deliveries,
) -> None:
    run = deliveries.first()

    with pytest.raises(InvalidInput, match="at most 1048576 bytes"):
        await run.step("download", lambda: "x" * 1024 * 1024)

    (step,) = deliveries.onefold.deliveries.steps(run.target.id)
    assert (step.state, step.result) == ("retrying", None)


async def test_f063_a_step_inside_a_step_is_a_part_of_it(
    deliveries: Deliveries, colour: Colour
) -> None:
    effect = Effect()
    run = deliveries.first()

    async def outer() -> Any:
        return await run.step("inner", effect, 1)

    inside = in_colour(outer, colour)
    await run.step("outer", inside)

    assert [step.name for step in deliveries.onefold.deliveries.steps(run.target.id)] == ["outer"]
    await deliveries.again(run).step("outer", inside)
    assert effect.count == 1


async def test_f063_a_transaction_inside_a_step_is_refused(deliveries: Deliveries) -> None:
    run = deliveries.first()

    with pytest.raises(UsageError, match="outside of the step"):
        await run.step("outer", run.target.transaction)
    with pytest.raises(UsageError, match="outside of the step"):
        await run.step("outer", lambda: run.target.transact("inner", lambda tx: None))


async def test_f068_a_cancelled_job_stops_at_its_next_step(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()
    await run.step("reserve", effect, 1)
    deliveries.onefold.cancel(run.target.id)

    with pytest.raises(LeaseLost):
        await run.step("charge", effect, 2)

    assert run.target.lost
    assert effect.calls == [1]


async def test_f068_the_record_of_a_step_that_is_running_is_still_written(
    deliveries: Deliveries,
) -> None:
    run = deliveries.first()

    def charge() -> str:
        deliveries.onefold.cancel(run.target.id)
        return "receipt"

    assert await run.step("charge", charge) == "receipt"
    (step,) = deliveries.onefold.deliveries.steps(run.target.id)
    assert (step.state, step.result) == ("finished", "receipt")
    deliveries.onefold.replay(run.target.id)
    assert await deliveries.take().step("charge", Effect()) == "receipt"


async def test_f068_a_run_that_was_told_it_is_lost_replays_nothing(deliveries: Deliveries) -> None:
    effect = Effect()
    run = deliveries.first()
    run.target.mark_lost()

    with pytest.raises(LeaseLost):
        await run.step("charge", effect)
    with pytest.raises(LeaseLost):
        await run.now()
    with pytest.raises(LeaseLost):
        await run.transaction().__aenter__()

    assert effect.count == 0


async def test_f072_each_step_has_a_key_of_its_own_in_every_attempt(deliveries: Deliveries) -> None:
    keys: list[str] = []
    run = deliveries.first()

    for _ in range(2):
        await run.step("charge", lambda: keys.append(run.target.key()))
    await run.using(key="o-7").step("charge", lambda: keys.append(run.target.key()))

    id_ = run.target.id
    assert keys == [f"{id_}:charge", f"{id_}:charge#2", f"{id_}:charge[o-7]"]
    for attempt in (run, deliveries.again(run)):
        assert keys == [
            attempt.key("charge"),
            attempt.key("charge#2"),
            attempt.key("charge", "o-7"),
        ]
    with pytest.raises(UsageError, match="for the function of a step"):
        run.target.key()


async def test_f072_a_fresh_replay_has_new_keys(deliveries: Deliveries) -> None:
    run = deliveries.first()
    before = run.key("charge")
    deliveries.onefold.deliveries.bury([run.target.job], reason="wrong")
    deliveries.onefold.replay(run.target.id)
    kept = deliveries.take()
    deliveries.onefold.deliveries.bury([kept.target.job], reason="wrong")
    deliveries.onefold.replay(run.target.id, fresh=True)

    assert kept.key("charge") == before
    assert deliveries.take().key("charge") == f"{run.target.id}.1:charge"


async def test_options_and_names_that_mean_nothing_are_refused(deliveries: Deliveries) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"attempts": 0}, "attempts"),
        ({"backoff": AT_ONCE}, "backoff"),
        ({"attempts": 2, "backoff": 3}, "backoff"),
        ({"unsafe": 1}, "unsafe"),
        ({"verify": "yes"}, "verify"),
        ({"retries": 2}, "retries"),
    ]
    run = deliveries.first()

    for options, field in bad:
        with pytest.raises(InvalidInput) as raised:
            run.using(**options)
        assert raised.value.field == field, options
    with pytest.raises(InvalidInput):
        await run.step("charge[7]", Effect())
    with pytest.raises(InvalidInput):
        await run.using(key="x" * 600).step("charge", Effect())


async def test_a_key_that_is_at_work_in_this_very_run_is_busy(deliveries: Deliveries) -> None:
    run = deliveries.first()
    target = run.target.using(key="7")

    def inner() -> None:
        # As another thread of the handler would: not as a part of this step.
        with ThreadPoolExecutor(1) as threads:
            threads.submit(target.step, "charge", Effect()).result()

    with pytest.raises(Busy):
        await run.using(key="7").step("charge", inner)


@pytest.mark.parametrize("colour", ["sync"])
@pytest.mark.parametrize("ends", ["taken over", "cancelled", "another task"])
async def test_a_step_that_waits_for_its_next_try_may_be_taken_by_another(
    deliveries: Deliveries, ends: str
) -> None:
    run, effect = deliveries.first(), Effect(fails=1)
    runtime = deliveries.onefold.context.runtime
    careful = run.target.using(attempts=3, key="o-7")
    step = careful._step("charge", effect, (7,), {}, awaited=False)

    command = next(step)
    while not isinstance(command, Pause):
        try:
            value: Any = runtime.perform(command)
        except ValueError as error:
            command = step.throw(error)
        else:
            command = step.send(value)
    (waiting,) = deliveries.onefold.deliveries.steps(run.target.id)
    assert (waiting.state, waiting.attempts) == ("retrying", 1)
    if ends == "cancelled":
        deliveries.onefold.cancel(run.target.id)
    else:
        other = deliveries.vanish() if ends == "taken over" else run
        await other.using(attempts=3, key="o-7").step("charge", effect, 7)
        assert effect.count == 2

    if ends == "cancelled":
        with pytest.raises(LeaseLost):
            runtime.run(_continued(step))
    else:
        assert runtime.run(_continued(step)) == {"done": 7}
    assert effect.count == (1 if ends == "cancelled" else 2)


def _continued(procedure: Any) -> Any:
    """A procedure after the command that it waits for."""
    command = procedure.send(None)
    while True:
        try:
            command = procedure.send((yield command))
        except StopIteration as ended:
            return ended.value
