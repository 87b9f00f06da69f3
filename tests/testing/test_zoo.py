"""Every bug of the zoo is found, and no correct twin is accused, on both databases."""

import inspect

import pytest

from onefold.testing import NotIdempotent, assert_idempotent
from tests.testing.zoo import ZOO, Handler, Shop

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


def _arguments(handler: Handler) -> tuple[int, ...]:
    return (ORDER,) if "order_id" in inspect.signature(handler.function).parameters else ()


@pytest.mark.parametrize("name", ZOO)
def test_the_bug_is_found(shop: Shop, name: str) -> None:
    bad, _ = ZOO[name](shop)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad, *_arguments(bad))

    assert "What usually helps:" in str(caught.value)
    difference, advice = SAID.get(name, ("", ""))
    assert caught.value.findings[0].differences[0].startswith(difference)
    assert caught.value.findings[0].advice.startswith(advice)


@pytest.mark.parametrize("name", ZOO)
def test_the_correct_twin_is_not_accused(shop: Shop, name: str) -> None:
    _, good = ZOO[name](shop)

    coverage = assert_idempotent(good, *_arguments(good))

    assert coverage.crash_points > 0
    assert coverage.deliveries > coverage.crash_points
