"""What the races share."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.place import Place, place, postgres_place
from tests.fixtures.shards import empty, spread
from tests.race.crew import crew

__all__ = ["crew", "empty", "place", "postgres_place", "spread"]


@pytest.fixture
def caller(postgres_place: Place) -> Iterator[Any]:
    """The application's connection, with a transaction that stays open."""
    with postgres_place.connection() as connection:
        connection.execute("begin")
        yield connection
