"""Real server processes on real databases, and their deaths."""

from tests.fixtures.place import place, postgres_place
from tests.fixtures.shards import empty
from tests.http.processes.site import site

__all__ = ["empty", "place", "postgres_place", "site"]
