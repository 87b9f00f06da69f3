"""The five answers of `claim`, and the order in which they are given."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import LeaseLost
from onefold.claims import Busy, Mismatch, Replay, Unknown, Won
from tests.fixtures.colours import Clock, Coloured, refused_field

MINUTE = timedelta(minutes=1)


async def won(onefold: Coloured, **options: Any) -> Any:
    answer = await onefold.claim("import", "k", **options)
    assert isinstance(answer, Won)
    return answer.claim


async def test_a_new_key_is_won(onefold: Coloured, clock: Clock) -> None:
    claim = await won(onefold, lease=MINUTE)

    assert claim.lease_until == clock.now + MINUTE
    assert not claim.resumed


async def test_a_settled_key_is_replayed_with_its_result(onefold: Coloured) -> None:
    claim = await won(onefold)
    await onefold.keys.settle(claim, {"rows": 7})

    answer = await onefold.claim("import", "k")

    assert answer == Replay({"rows": 7}, claim.id)


async def test_a_held_key_is_busy_until_its_lease_ends(onefold: Coloured, clock: Clock) -> None:
    await won(onefold, lease=MINUTE)
    clock.advance(timedelta(seconds=20))

    answer = await onefold.claim("import", "k")

    assert isinstance(answer, Busy)
    assert answer.retry_after == timedelta(seconds=40)
    assert answer.key == "k"


async def test_another_fingerprint_is_a_mismatch(onefold: Coloured) -> None:
    await won(onefold, fingerprint="one")

    assert await onefold.claim("import", "k", fingerprint="two") == Mismatch("k", "one")


async def test_a_vanished_attempt_is_unknown_where_takeover_is_refused(
    onefold: Coloured, clock: Clock
) -> None:
    claim = await won(onefold, lease=MINUTE, takeover="refuse")
    clock.advance(MINUTE)

    assert await onefold.claim("import", "k") == Unknown("k", claim.fence, clock.now)


async def test_an_expired_key_is_absent_whatever_its_fingerprint(
    onefold: Coloured, clock: Clock
) -> None:
    claim = await won(onefold, fingerprint="one", retention=MINUTE)
    await onefold.keys.settle(claim, "old")
    clock.advance(MINUTE)

    again = await won(onefold, fingerprint="two")

    assert again.fence > claim.fence


async def test_mismatch_is_told_before_replay(onefold: Coloured) -> None:
    await onefold.keys.settle(await won(onefold, fingerprint="one"), "result")

    assert isinstance(await onefold.claim("import", "k", fingerprint="two"), Mismatch)
    assert isinstance(await onefold.claim("import", "k", fingerprint="one"), Replay)


async def test_mismatch_is_told_before_busy(onefold: Coloured) -> None:
    await won(onefold, fingerprint="one", lease=MINUTE)

    assert isinstance(await onefold.claim("import", "k", fingerprint="two"), Mismatch)
    assert isinstance(await onefold.claim("import", "k", fingerprint="one"), Busy)


@pytest.mark.parametrize("takeover", ["rerun", "resume", "refuse"])
async def test_mismatch_is_told_before_a_takeover(
    onefold: Coloured, clock: Clock, takeover: str
) -> None:
    await won(onefold, fingerprint="one", lease=MINUTE, takeover=takeover)
    clock.advance(2 * MINUTE)

    assert isinstance(await onefold.claim("import", "k", fingerprint="two"), Mismatch)


async def test_busy_is_told_before_a_takeover(onefold: Coloured, clock: Clock) -> None:
    await won(onefold, lease=MINUTE, takeover="rerun")
    clock.advance(MINUTE - timedelta(microseconds=1))

    assert isinstance(await onefold.claim("import", "k", takeover="rerun"), Busy)

    clock.advance(timedelta(microseconds=1))

    await won(onefold, takeover="rerun")


async def test_an_attempt_without_a_fingerprint_is_not_compared(onefold: Coloured) -> None:
    await onefold.keys.settle(await won(onefold, fingerprint="one"), "result")

    assert isinstance(await onefold.claim("import", "k"), Replay)


async def test_a_released_key_is_won_again_with_any_fingerprint(onefold: Coloured) -> None:
    claim = await won(onefold, fingerprint="one")

    assert await onefold.keys.release(claim)

    again = await won(onefold, fingerprint="two")
    assert again.fence > claim.fence
    assert again.id != claim.id


async def test_keys_of_other_scopes_surfaces_and_tenants_are_other_keys(onefold: Coloured) -> None:
    claims = [
        await won(onefold),
        await won(onefold, surface="form"),
        await won(onefold.tenant("acme")),
    ]
    other_scope = await onefold.claim("export", "k")

    assert isinstance(other_scope, Won)
    assert len({claim.id for claim in (*claims, other_scope.claim)}) == 4


async def test_a_settle_is_told_twice_and_counts_once(onefold: Coloured) -> None:
    claim = await won(onefold)

    await onefold.keys.settle(claim, "first")
    await onefold.keys.settle(claim, "first")

    assert (await onefold.claim("import", "k")).result == "first"


async def test_a_stale_settle_writes_nothing(onefold: Coloured, clock: Clock) -> None:
    stale = await won(onefold, lease=MINUTE, takeover="rerun")
    clock.advance(MINUTE)
    current = await won(onefold)

    with pytest.raises(LeaseLost) as caught:
        await onefold.keys.settle(stale, "stale")

    assert caught.value.fence == stale.fence
    await onefold.keys.settle(current, "current")
    assert (await onefold.claim("import", "k")).result == "current"


async def test_a_settle_after_the_lease_counts_while_nobody_took_the_key(
    onefold: Coloured, clock: Clock
) -> None:
    claim = await won(onefold, lease=MINUTE)
    clock.advance(2 * MINUTE)

    await onefold.keys.settle(claim, "late")

    assert (await onefold.claim("import", "k")).result == "late"


async def test_a_settled_claim_is_not_released(onefold: Coloured) -> None:
    claim = await won(onefold)
    await onefold.keys.settle(claim, "done")

    assert not await onefold.keys.release(claim)
    assert isinstance(await onefold.claim("import", "k"), Replay)


async def test_a_renewed_lease_counts_from_now(onefold: Coloured, clock: Clock) -> None:
    claim = await won(onefold, lease=MINUTE)
    clock.advance(timedelta(seconds=50))

    assert await onefold.keys.renew(claim, lease=MINUTE) == clock.now + MINUTE

    clock.advance(timedelta(seconds=50))
    assert isinstance(await onefold.claim("import", "k"), Busy)


async def test_a_renewal_never_shortens_a_lease(onefold: Coloured, clock: Clock) -> None:
    claim = await won(onefold, lease=MINUTE)
    ends = clock.now + MINUTE

    assert await onefold.keys.renew(claim, lease=timedelta(seconds=10)) == ends

    clock.advance(timedelta(seconds=50))
    assert isinstance(await onefold.claim("import", "k"), Busy)


RESULTS: list[Any] = [
    None,
    True,
    0,
    -(2**70),
    1.5,
    "",
    "zwölf \U0001f600 \u2028",
    [],
    {},
    {"nested": [1, {"deep": None}], "ü": "x"},
]


@pytest.mark.parametrize("result", RESULTS, ids=repr)
async def test_a_result_comes_back_as_it_was_given(onefold: Coloured, result: Any) -> None:
    await onefold.keys.settle(await won(onefold), result)

    replay = await onefold.claim("import", "k")

    assert replay.result == result
    assert type(replay.result) is type(result)


async def test_a_result_that_cannot_be_stored_is_refused_and_settles_nothing(
    onefold: Coloured,
) -> None:
    claim = await won(onefold)

    for result in (object(), float("nan"), "x" * (1024 * 1024)):
        assert await refused_field(onefold.keys.settle, claim, result) == "result", type(result)

    assert isinstance(await onefold.claim("import", "k"), Busy)


async def test_the_largest_result_is_stored(onefold: Coloured) -> None:
    largest = "x" * (1024 * 1024 - 2)

    await onefold.keys.settle(await won(onefold), largest)

    assert (await onefold.claim("import", "k")).result == largest


async def test_bad_input_is_refused_by_the_name_of_its_field(onefold: Coloured) -> None:
    bad: list[tuple[str, dict[str, Any]]] = [
        ("takeover", {"takeover": "hope"}),
        ("lease", {"lease": timedelta(0)}),
        ("lease", {"lease": timedelta(seconds=-1)}),
        ("lease", {"lease": 60}),
        ("retention", {"retention": timedelta(0)}),
        ("fingerprint", {"fingerprint": ""}),
        ("surface", {"surface": "a,b"}),
        ("key", {"key": ""}),
        ("key", {"key": "x" * 513}),
        ("key", {"key": "nul\x00"}),
        ("key", {"key": 7}),
        ("scope", {"scope": None}),
    ]
    for field, options in bad:
        given = {"scope": "import", "key": "k", **options}
        found = await refused_field(onefold.claim, given.pop("scope"), given.pop("key"), **given)
        assert found == field, options


async def test_a_bad_option_is_refused_by_name_and_claims_nothing(onefold: Coloured) -> None:
    bad: list[tuple[str, dict[str, Any]]] = [
        ("leese", {"leese": MINUTE}),
        ("wait", {"wait": MINUTE}),
        ("takeover", {"takeover": []}),
        ("takeover", {"takeover": ""}),
        ("lease", {"lease": 60}),
        ("surface", {"surface": []}),
        ("surface", {"surface": "publish"}),
    ]
    for field, options in bad:
        assert await refused_field(onefold.claim, "import", "k", **options) == field, options

    await won(onefold)


async def test_what_is_no_claim_is_refused_by_name(onefold: Coloured) -> None:
    keys = onefold.keys
    for call in (keys.settle, keys.release, keys.renew):
        for claim in (None, "x", 5):
            assert await refused_field(call, claim) == "claim", (call, claim)
