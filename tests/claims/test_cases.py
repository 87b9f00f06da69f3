"""Every case of claims and of steps has a test that names it."""

import re
from pathlib import Path

import pytest

from tests.claims import cases as of_claims
from tests.effects import cases as of_effects

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("folder", "cases"), [("claims", of_claims.CASES), ("effects", of_effects.CASES)]
)
def test_every_case_is_named_by_a_test_of_its_folder(folder: str, cases: dict[int, str]) -> None:
    """By the numbers in the names of tests: test_f007_…"""
    named: set[int] = set()
    for file in (TESTS / folder).glob("test_*.py"):
        for name in re.findall(
            r"^(?:async )?def (test_f\d{3}_\w+)", file.read_text(), re.MULTILINE
        ):
            named.update(int(number) for number in re.findall(r"(?<=_)f(\d{3})(?=_)", name))

    assert named == set(cases)
