"""Real worker processes on real databases, and their deaths."""

from tests.fixtures.place import new_schema, place, postgres_place
from tests.fixtures.shards import empty
from tests.kill.workers import postgres_shop, shop, sqlite_shop

__all__ = ["empty", "new_schema", "place", "postgres_place", "postgres_shop", "shop", "sqlite_shop"]
