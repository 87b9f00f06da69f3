"""Real couriers on real databases, and endpoints on loopback that answer as they are told to."""

from tests.fixtures.place import place, postgres_place

__all__ = ["place", "postgres_place"]
