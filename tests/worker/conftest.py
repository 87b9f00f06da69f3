"""Real workers on real databases, in this process; those that are killed have one of their own."""

from tests.fixtures.place import place, postgres_place
from tests.fixtures.shards import empty, spread

__all__ = ["empty", "place", "postgres_place", "spread"]
