"""What the crashes share."""

from tests.fixtures.place import place, postgres_place

__all__ = ["place", "postgres_place"]
