"""What the races share."""

from tests.fixtures.place import place, postgres_place
from tests.race.crew import crew

__all__ = ["crew", "place", "postgres_place"]
