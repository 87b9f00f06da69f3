"""API keys on each database in turn."""

from tests.fixtures.place import place, postgres_place

__all__ = ["place", "postgres_place"]
