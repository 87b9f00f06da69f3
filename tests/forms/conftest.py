"""What tests of forms share."""

import pytest

from onefold.surfaces.forms import FormKeys
from onefold.testing.clock import Clock

SECRET = "a secret that is long enough"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(clock: Clock) -> FormKeys:
    return FormKeys(SECRET, clock=clock)
