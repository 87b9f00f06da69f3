"""Every case of keyed requests and forms has a test that names it: test_h…, or H and its number.

Those of webhooks are W, and stand in the names of tests.
"""

import re
from itertools import chain
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOLDERS = ("http", "forms", "examples", "claims", "cli", "natural")
KEYS, SCOPES, FINGERPRINTS = range(1, 28), range(30, 50), range(50, 64)
ANSWERS, SIZES, CONCURRENCY, FAILURES = (
    range(70, 99), range(100, 105), range(110, 121), range(130, 157),
)  # fmt: skip
COMMIT, TIME, VERSIONS = range(160, 171), range(180, 190), range(191, 194)
TOLD, FORMS = range(200, 211), range(220, 231)
CASES = set(
    chain(
        *(KEYS, SCOPES, FINGERPRINTS, ANSWERS, SIZES, CONCURRENCY, FAILURES),
        *(COMMIT, TIME, VERSIONS, TOLD, FORMS),
    )
)


def named(pattern: str, folder: str) -> set[int]:
    texts = [file.read_text() for file in (TESTS / folder).rglob("*.py")]
    return {int(number) for text in texts for number in re.findall(pattern, text)}


def test_every_case_is_named_by_a_test_and_no_other_is() -> None:
    keyed = (named(r"(?:\bH|_h)(\d{3})(?!\d)", folder) for folder in FOLDERS)

    assert set[int]().union(*keyed) == CASES
    assert named(r"(?<=_)w(\d{3})(?=_)", "webhooks") == set(range(1, 57))
