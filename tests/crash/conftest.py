"""What the crashes share."""

from tests.fixtures.migrated import new_schema
from tests.fixtures.place import place, postgres_place
from tests.fixtures.shards import empty, spread

__all__ = ["empty", "new_schema", "place", "postgres_place", "spread"]
