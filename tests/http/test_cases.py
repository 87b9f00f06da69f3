"""Every case of keyed requests and forms has a test that names it: test_h…, or H and its number."""

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


def named() -> set[int]:
    found: set[int] = set()
    for folder in FOLDERS:
        for file in (TESTS / folder).rglob("*.py"):
            numbers = re.findall(r"(?:\bH|_h)(\d{3})(?!\d)", file.read_text())
            found.update(int(number) for number in numbers)
    return found


def test_every_case_is_named_by_a_test_and_no_other_is() -> None:
    assert named() == CASES
