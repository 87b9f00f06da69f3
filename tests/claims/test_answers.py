"""The five answers of `claim`, and the order in which they are given."""

from datetime import timedelta
from typing import Any

import pytest

from onefold.claims import Busy, Unknown, Won
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


async def test_a_held_key_is_busy_until_its_lease_ends(onefold: Coloured, clock: Clock) -> None:
    await won(onefold, lease=MINUTE)
    clock.advance(timedelta(seconds=20))

    answer = await onefold.claim("import", "k")

    assert isinstance(answer, Busy)
    assert answer.retry_after == timedelta(seconds=40)
    assert answer.key == "k"


async def test_a_vanished_attempt_is_unknown_where_takeover_is_refused(
    onefold: Coloured, clock: Clock
) -> None:
    claim = await won(onefold, lease=MINUTE, takeover="refuse")
    clock.advance(MINUTE)

    assert await onefold.claim("import", "k") == Unknown("k", claim.fence, clock.now)


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


async def test_the_largest_result_is_stored(onefold: Coloured) -> None:
    largest = "x" * (1024 * 1024 - 2)

    await onefold.keys.settle(await won(onefold), largest)

    assert (await onefold.claim("import", "k")).result == largest


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
