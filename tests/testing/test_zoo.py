"""Every bug of the zoo is found, and no correct twin is accused, on both databases."""

import inspect

import pytest

from onefold.testing import NotIdempotent, assert_idempotent
from tests.testing.zoo import ZOO, Handler, Shop

ORDER = 7


def _arguments(handler: Handler) -> tuple[int, ...]:
    return (ORDER,) if "order_id" in inspect.signature(handler.function).parameters else ()


@pytest.mark.parametrize("name", ZOO)
def test_the_bug_is_found(shop: Shop, name: str) -> None:
    bad, _ = ZOO[name](shop)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad, *_arguments(bad))

    report = str(caught.value)
    assert "What usually helps:" in report


@pytest.mark.parametrize("name", ZOO)
def test_the_correct_twin_is_not_accused(shop: Shop, name: str) -> None:
    _, good = ZOO[name](shop)

    coverage = assert_idempotent(good, *_arguments(good))

    assert coverage.crash_points > 0
    assert coverage.deliveries > coverage.crash_points
