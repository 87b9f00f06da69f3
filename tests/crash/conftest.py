"""What the crashes share."""

from tests.fixtures.place import new_schema, place, postgres_place
from tests.fixtures.shards import empty, spread

__all__ = ["empty", "new_schema", "place", "postgres_place", "spread"]
