"""What becomes of a leased claim whose attempt vanished: its takeover decides, or `verify`."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import InvalidInput, LeaseLost, OutcomeUnknown
from onefold.claims import Busy, Done, NotDone, Unknown, Won
from tests.fixtures.colours import Clock, Coloured, Store

MINUTE = timedelta(minutes=1)


async def vanish(onefold: Coloured, clock: Clock, **options: Any) -> Any:
    """A claim whose attempt is never heard of again."""
    answer = await onefold.claim("charge", "order:7", lease=MINUTE, **options)
    assert isinstance(answer, Won)
    clock.advance(MINUTE)
    return answer.claim


@pytest.mark.parametrize("newcomer", ["rerun", "resume", "refuse"])
async def test_refuse_leaves_the_outcome_unknown_whatever_the_newcomer_wants(
    onefold: Coloured, clock: Clock, newcomer: str
) -> None:
    gone = await vanish(onefold, clock, takeover="refuse")
    ended = clock.now
    clock.advance(timedelta(days=365))

    answer = await onefold.claim("charge", "order:7", takeover=newcomer)

    assert answer == Unknown("order:7", gone.fence, ended)


async def test_a_taken_over_attempt_can_do_nothing_more(onefold: Coloured, clock: Clock) -> None:
    gone = await vanish(onefold, clock, takeover="rerun")
    await onefold.claim("charge", "order:7", lease=MINUTE)

    assert not await onefold.keys.release(gone)
    assert await onefold.keys.renew(gone) is None
    with pytest.raises(LeaseLost):
        await onefold.keys.settle(gone, "late")
    assert isinstance(await onefold.claim("charge", "order:7"), Busy)


async def test_the_default_takeover_of_once_is_refuse(onefold: Coloured, clock: Clock) -> None:
    gone = await vanish(onefold, clock)

    assert gone.guarantee == "at most once"
    with pytest.raises(OutcomeUnknown) as caught:
        async with onefold.once("charge", "order:7"):
            pytest.fail("an attempt with an unknown outcome was repeated")
    assert caught.value.key == "order:7"
    assert caught.value.since == clock.now


async def test_verify_that_finds_it_done_settles_the_key(onefold: Coloured, clock: Clock) -> None:
    await vanish(onefold, clock)
    asked: list[str] = []

    def verify(key: str) -> Done:
        asked.append(key)
        return Done({"receipt": 9})

    async with onefold.once("charge", "order:7", verify=verify) as claim:
        assert claim.replayed
        assert claim.result == {"receipt": 9}

    assert asked == ["order:7"]
    assert (await onefold.claim("charge", "order:7")).result == {"receipt": 9}


def undone(_key: str) -> NotDone:
    return NotDone()


def unsure(_key: str) -> None:
    return None


async def test_verify_that_finds_it_undone_lets_it_run(onefold: Coloured, clock: Clock) -> None:
    gone = await vanish(onefold, clock)

    async with onefold.once("charge", "order:7", verify=undone) as claim:
        assert claim.won
        assert claim.fence > gone.fence
        claim.result = "charged"

    assert (await onefold.claim("charge", "order:7")).result == "charged"


async def test_verify_that_cannot_tell_leaves_it_unknown(onefold: Coloured, clock: Clock) -> None:
    await vanish(onefold, clock)

    with pytest.raises(OutcomeUnknown):
        async with onefold.once("charge", "order:7", verify=unsure):
            pytest.fail("an attempt with an unknown outcome was repeated")

    assert isinstance(await onefold.claim("charge", "order:7"), Unknown)


async def test_verify_that_raises_changes_nothing(onefold: Coloured, clock: Clock) -> None:
    await vanish(onefold, clock)

    def verify(_key: str) -> None:
        raise ConnectionError("the provider is down")

    with pytest.raises(OutcomeUnknown) as raised:
        async with onefold.once("charge", "order:7", verify=verify):
            pytest.fail("an attempt with an unknown outcome was repeated")
    assert isinstance(raised.value.__cause__, ConnectionError)

    assert isinstance(await onefold.claim("charge", "order:7"), Unknown)


async def test_an_exception_gives_the_key_back_unless_those_that_do_are_named(
    onefold: Coloured,
) -> None:
    """Outside of a job every exception is a failure, by default: the next caller tries again."""

    async def charge(error: Exception, **options: Any) -> None:
        async with onefold.once("charge", "order:7", **options):
            raise error

    with pytest.raises(TimeoutError):
        await charge(TimeoutError())
    with pytest.raises(KeyError):
        await charge(KeyError(), not_done=KeyError)
    with pytest.raises(OutcomeUnknown):
        await charge(TimeoutError(), not_done=KeyError)
    # At once, whatever is left of the lease.
    assert isinstance(await onefold.claim("charge", "order:7"), Unknown)
    async with onefold.once("charge", "order:7", verify=undone) as claim:
        assert claim.won


async def test_verify_that_raises_after_an_exception_leaves_the_key_unknown_at_once(
    onefold: Coloured,
) -> None:
    def down(_key: str) -> NotDone:
        raise ConnectionRefusedError

    with pytest.raises(OutcomeUnknown) as raised:
        async with onefold.once("charge", "order:7", not_done=(), verify=down):
            raise TimeoutError

    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    assert isinstance(await onefold.claim("charge", "order:7"), Unknown)


async def test_verify_that_answers_something_else_is_refused(
    onefold: Coloured, clock: Clock
) -> None:
    await vanish(onefold, clock)

    with pytest.raises(InvalidInput, match="verify must return Done, NotDone or None, got True"):
        async with onefold.once("charge", "order:7", verify=bool):
            pytest.fail("an attempt with an unknown outcome was repeated")

    assert isinstance(await onefold.claim("charge", "order:7"), Unknown)


@pytest.mark.parametrize("verdict", [Done("seen"), NotDone(), None], ids=repr)
async def test_an_async_verify_is_awaited(
    store: Store, clock: Clock, verdict: Done | NotDone | None
) -> None:
    onefold = store.open(clock=clock)
    await vanish(Coloured(onefold, "async"), clock)

    async def verify(_key: str) -> Done | NotDone | None:
        return verdict

    if verdict is None:
        with pytest.raises(OutcomeUnknown):
            await onefold.once("charge", "order:7", verify=verify).__aenter__()
        return
    async with onefold.once("charge", "order:7", verify=verify) as claim:
        assert claim is not None
        assert claim.won == isinstance(verdict, NotDone)


@pytest.mark.parametrize("verdict", [Done("mine"), NotDone()], ids=repr)
async def test_a_verdict_that_comes_after_somebody_settled_the_key_gives_way(
    onefold: Coloured, store: Store, clock: Clock, verdict: Done | NotDone
) -> None:
    await vanish(onefold, clock)
    operator = store.open(clock=clock)

    def verify(_key: str) -> Done | NotDone:
        assert operator.keys.force_settle("charge", "order:7", "theirs")
        return verdict

    async with onefold.once("charge", "order:7", verify=verify) as claim:
        assert claim.replayed
        assert claim.result == "theirs"


@pytest.mark.parametrize("verdict", [Done("mine"), NotDone()], ids=repr)
async def test_a_verdict_that_comes_after_somebody_took_the_key_is_busy(
    onefold: Coloured, store: Store, clock: Clock, verdict: Done | NotDone
) -> None:
    await vanish(onefold, clock)
    rival = store.open(clock=clock)

    def verify(_key: str) -> Done | NotDone:
        rival.once("charge", "order:7", verify=lambda _: NotDone()).__enter__()
        return verdict

    with pytest.raises(Busy):
        async with onefold.once("charge", "order:7", verify=verify):
            pytest.fail("somebody else is at work")


async def test_an_operator_settles_an_unknown_outcome(onefold: Coloured, clock: Clock) -> None:
    gone = await vanish(onefold, clock)

    assert await onefold.keys.force_settle("charge", "order:7", {"by": "hand"})

    assert (await onefold.claim("charge", "order:7")).result == {"by": "hand"}
    with pytest.raises(LeaseLost):
        await onefold.keys.settle(gone, "late")


async def test_an_operator_takes_a_key_from_a_living_holder_and_fences_it_off(
    onefold: Coloured,
) -> None:
    held = (await onefold.claim("charge", "order:7", fingerprint="one")).claim

    assert await onefold.keys.force_release("charge", "order:7")

    with pytest.raises(LeaseLost):
        await onefold.keys.settle(held, "too late")
    assert await onefold.keys.renew(held) is None
    assert isinstance(await onefold.claim("charge", "order:7", fingerprint="two"), Won)


async def test_an_operator_is_told_that_there_is_no_such_key(onefold: Coloured) -> None:
    assert not await onefold.keys.force_settle("charge", "order:8", "x")
    assert not await onefold.keys.force_release("charge", "order:8")
    assert isinstance(await onefold.claim("charge", "order:8"), Won)
