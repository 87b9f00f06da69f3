"""What a claim answers beside what the model of claims compares: results, and refusals."""

from datetime import timedelta
from typing import Any

from onefold.claims import Won
from tests.fixtures.colours import Coloured, refused_field

MINUTE = timedelta(minutes=1)


async def won(onefold: Coloured) -> Any:
    answer = await onefold.claim("import", "k")
    assert isinstance(answer, Won)
    return answer.claim


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
    "x" * (1024 * 1024 - 2),
]


async def test_a_result_comes_back_as_it_was_given(onefold: Coloured) -> None:
    for result in RESULTS:
        await onefold.keys.settle(await won(onefold), result)

        replay = await onefold.claim("import", "k")

        assert (replay.result, type(replay.result)) == (result, type(result))
        await onefold.keys.force_release("import", "k")


async def test_a_bad_option_is_refused_by_name_and_claims_nothing(onefold: Coloured) -> None:
    bad: list[tuple[str, dict[str, Any]]] = [
        ("leese", {"leese": MINUTE}),
        ("wait", {"wait": MINUTE}),
        ("takeover", {"takeover": []}),
        ("takeover", {"takeover": ""}),
        ("lease", {"lease": 60}),
        ("surface", {"surface": []}),
        *[("surface", {"surface": name}) for name in ("publish", "lock", "cron", "step")],
    ]
    for field, options in bad:
        assert await refused_field(onefold.claim, "import", "k", **options) == field, options

    await won(onefold)
    keys = onefold.keys
    for call in (keys.settle, keys.release, keys.renew):
        for claim in (None, "x", 5):
            assert await refused_field(call, claim) == "claim", (call, claim)
