"""Every case has a test that names it: in its name (test_h…), its docstring or a comment."""

import re
from pathlib import Path

from tests.http.cases import CASES

TESTS = Path(__file__).parents[1]
FOLDERS = ("http", "forms", "examples", "claims", "cli", "natural")


def named() -> set[int]:
    """The numbers in the tests: an H and three digits, or a small h behind an underscore."""
    found: set[int] = set()
    for folder in FOLDERS:
        for file in (TESTS / folder).rglob("*.py"):
            numbers = re.findall(r"(?:\bH|_h)(\d{3})(?!\d)", file.read_text())
            found.update(int(number) for number in numbers)
    return found


def test_every_case_is_named_by_a_test() -> None:
    missing = sorted(set(CASES) - named())
    assert not missing, "\n".join(f"H{number:03}: {CASES[number]}" for number in missing)


def test_no_test_names_a_case_that_does_not_exist() -> None:
    assert named() - set(CASES) == set()
