"""Places beside the server."""

from tests.fixtures.place import place, postgres_place

__all__ = ["place", "postgres_place"]
