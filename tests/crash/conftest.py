"""What the crashes share."""

from tests.fixtures.place import place, postgres_place
from tests.fixtures.shards import empty, spread

__all__ = ["empty", "place", "postgres_place", "spread"]
