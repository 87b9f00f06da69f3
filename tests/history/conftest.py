"""The databases, with one shard and with four."""

from tests.fixtures.place import place, postgres_place
from tests.fixtures.shards import empty, spread

__all__ = ["empty", "place", "postgres_place", "spread"]
