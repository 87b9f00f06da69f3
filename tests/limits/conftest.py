"""What the tests of limits share."""

from tests.fixtures.place import place, postgres_place
from tests.fixtures.shards import empty, spread
from tests.race.crew import crew

__all__ = ["crew", "empty", "place", "postgres_place", "spread"]
