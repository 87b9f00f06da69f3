"""What the tests of limits share."""

import pytest

from tests.fixtures.place import Place, place, postgres_place
from tests.fixtures.shards import empty, found
from tests.race.crew import crew

__all__ = ["crew", "empty", "place", "postgres_place"]


@pytest.fixture(params=[1, 4], ids=["whole", "spread"])
def raced(request: pytest.FixtureRequest, empty: Place) -> Place:
    """Each database in turn, with one shard and with four."""
    found(empty, request.param)
    return empty
