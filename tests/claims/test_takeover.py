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


@pytest.mark.parametrize("verdict", [Done("seen"), NotDone(), None], ids=repr)
async def test_verify_decides_about_an_unknown_outcome(
    onefold: Coloured, clock: Clock, verdict: Done | NotDone | None
) -> None:
    gone = await vanish(onefold, clock)
    asked: list[str] = []

    def verify(key: str) -> Done | NotDone | None:
        asked.append(key)
        return verdict

    once = onefold.once("charge", "order:7", verify=onefold.function(verify))
    if verdict is None:
        with pytest.raises(OutcomeUnknown):
            await once.__aenter__()
        assert await onefold.claim("charge", "order:7") == Unknown("order:7", gone.fence, clock.now)
    else:
        async with once as claim:
            assert claim.won == isinstance(verdict, NotDone)
            if claim.won:
                assert claim.fence > gone.fence
                claim.result = "charged"
        assert claim.result == ("charged" if claim.won else "seen")
        assert (await onefold.claim("charge", "order:7")).result == claim.result
    assert asked == ["order:7"]


def undone(_key: str) -> NotDone:
    return NotDone()


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


async def test_verify_that_raises_or_answers_something_else_leaves_the_key_unknown(
    onefold: Coloured,
) -> None:
    def down(_key: str) -> NotDone:
        raise ConnectionRefusedError

    with pytest.raises(OutcomeUnknown) as raised:
        async with onefold.once("charge", "order:7", not_done=(), verify=down):
            raise TimeoutError

    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    assert isinstance(await onefold.claim("charge", "order:7"), Unknown)
    with pytest.raises(InvalidInput, match="verify must return Done, NotDone or None, got True"):
        async with onefold.once("charge", "order:7", verify=bool):
            pytest.fail("an attempt with an unknown outcome was repeated")
    assert isinstance(await onefold.claim("charge", "order:7"), Unknown)


@pytest.mark.parametrize("verdict", [Done("mine"), NotDone()], ids=repr)
async def test_a_verdict_that_comes_after_somebody_settled_or_took_the_key_gives_way(
    onefold: Coloured, store: Store, clock: Clock, verdict: Done | NotDone
) -> None:
    gone = await vanish(onefold, clock)
    operator = store.open(clock=clock)

    def verify(_key: str) -> Done | NotDone:
        assert operator.keys.force_settle("charge", "order:7", "theirs")
        return verdict

    async with onefold.once("charge", "order:7", verify=verify) as claim:
        assert claim.replayed
        assert claim.result == "theirs"
    with pytest.raises(LeaseLost):
        await onefold.keys.settle(gone, "late")

    await onefold.keys.force_release("charge", "order:7")
    await vanish(onefold, clock)

    def verify_too_late(_key: str) -> Done | NotDone:
        operator.once("charge", "order:7", verify=undone).__enter__()
        return verdict

    with pytest.raises(Busy):
        async with onefold.once("charge", "order:7", verify=verify_too_late):
            pytest.fail("somebody else is at work")
