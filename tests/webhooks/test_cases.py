"""Every case has a test that names it."""

import re
from pathlib import Path

CASES = set(range(1, 57))


def named() -> set[int]:
    """The numbers in the names of the tests of this folder: test_w007_…"""
    found: set[int] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        for name in re.findall(
            r"^(?:async )?def (test_w\d{3}_\w+)", file.read_text(), re.MULTILINE
        ):
            found.update(int(number) for number in re.findall(r"(?<=_)w(\d{3})(?=_)", name))
    return found


def test_every_case_is_named_by_a_test_and_no_other_is() -> None:
    assert named() == CASES
