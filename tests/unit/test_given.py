"""What callers hand over, by its shape."""

from __future__ import annotations

from typing import Any

import pytest

from onefold.errors import InvalidInput
from onefold.model import checks


def test_options_that_exist_are_accepted() -> None:
    checks.options({}, {"lease"})
    checks.options({"lease": None}, {"lease", "wait"})


def test_an_option_that_does_not_exist_is_named_and_the_others_are_listed() -> None:
    with pytest.raises(InvalidInput) as caught:
        checks.options({"lease": 1, "laese": 2}, {"wait", "lease"})

    assert caught.value.field == "laese"
    assert str(caught.value) == "laese is not an option here; the options are lease, wait"


@pytest.mark.parametrize("value", [True, False])
def test_a_flag_is_true_or_false(value: bool) -> None:  # noqa: FBT001
    assert checks.flag(value, "fresh") is value


@pytest.mark.parametrize("value", ["no", 0, 1, None, []])
def test_nothing_is_taken_for_a_flag(value: Any) -> None:
    with pytest.raises(InvalidInput, match="fresh must be True or False"):
        checks.flag(value, "fresh")


@pytest.mark.parametrize("value", [[1, 2], (1, 2), range(1, 3), {1: 1, 2: 1}.keys()])
def test_anything_that_gives_elements_is_a_list(value: Any) -> None:
    assert checks.listed(value, "jobs", "jobs") == [1, 2]


@pytest.mark.parametrize("value", [None, 5, "text", b"bytes", {"a": 1}, object])
def test_text_mappings_and_single_values_are_no_list(value: Any) -> None:
    with pytest.raises(InvalidInput, match="jobs must be a list of taken jobs, got"):
        checks.listed(value, "jobs", "taken jobs")
