"""How long an endpoint that is down is left alone."""

import pytest

from onefold.push.endpoint_health import hold_after


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 0), (1, 0), (4, 0), (5, 1), (6, 2), (7, 4), (10, 32), (11, 60), (12, 60), (10_000, 60)],
)
def test_the_longer_it_is_down_the_longer_it_is_left_alone(failures: int, seconds: int) -> None:
    assert hold_after(failures).total_seconds() == seconds
