"""Every bug of the zoo is found, and no correct twin is accused, on both databases."""

import inspect
from typing import Any

import pytest

from onefold.testing import NotIdempotent, assert_idempotent
from tests.testing.zoo import ZOO, Shop

ORDER = 7
SAID = {
    "commit_inside": (
        "+ row of payment, once too many: id=2, order_id=7, amount=5",
        "write in run.transaction(), which completes the job",
    ),
    "read_modify_write": (
        "~ row of account, changed: balance=90 instead of 95 (id=",
        "the new value depends on the old one.",
    ),
    "late_writer": ("~ row of account, changed: ", "two deliveries have read the same old state"),
    "record_before_effect": (
        "- effect, once missing: mail 7",
        "the work was recorded before it was done.",
    ),
    "key_per_attempt": ("+ effect, once too many: charge 7", "the key of the call differs"),
    "enqueue_apart": (
        '+ job, once too many: mail {"order":7}',
        "enqueue in the same transaction",
    ),
    "insert_that_fails_the_second_time": (
        "the work does not end: the handler raises ",
        "a handler that runs again must accept that its rows exist",
    ),
}
"""The difference and the advice that come first in the report."""


def _declared(shop: Shop, name: str, *, is_bad: bool) -> tuple[Any, ...]:
    """A job, and its arguments."""
    made = ZOO[name](shop, is_bad=is_bad)
    job = made if hasattr(made, "enqueue") else shop.onefold.job(made)
    takes = inspect.signature(job.function).parameters
    return (job, ORDER) if "order_id" in takes else (job,)


@pytest.mark.parametrize("name", ZOO)
def test_the_bug_is_found(shop: Shop, name: str) -> None:
    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(*_declared(shop, name, is_bad=True))

    assert "What usually helps:" in str(caught.value)
    difference, advice = SAID.get(name, ("", ""))
    assert caught.value.findings[0].differences[0].startswith(difference)
    assert caught.value.findings[0].advice.startswith(advice)


@pytest.mark.parametrize("name", ZOO)
def test_the_correct_twin_is_not_accused(shop: Shop, name: str) -> None:
    coverage = assert_idempotent(*_declared(shop, name, is_bad=False))

    assert coverage.crash_points > 0
    assert coverage.deliveries > coverage.crash_points
