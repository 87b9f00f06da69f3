"""What the races share."""

from collections.abc import Iterator
from typing import Any

import pytest

from onefold import Onefold
from tests.fixtures.patience import LOCK
from tests.fixtures.place import Place, place, postgres_place
from tests.fixtures.shards import empty, spread
from tests.race.crew import crew

__all__ = ["crew", "empty", "place", "postgres_place", "spread"]


@pytest.fixture
def onefold(postgres_place: Place) -> Iterator[Onefold]:
    with postgres_place.open(busy_timeout=LOCK) as opened:
        yield opened


@pytest.fixture
def caller(postgres_place: Place) -> Iterator[Any]:
    """The application's connection, with a transaction that stays open."""
    with postgres_place.connection() as connection:
        connection.execute("begin")
        yield connection
