"""Real workers on real databases, in this process; those that are killed have one of their own."""

from tests.fixtures.place import place, postgres_place

__all__ = ["place", "postgres_place"]
