"""Both databases, with one shard and with four; and a server on each of them."""

from tests.fixtures.colours import clock, pytest_pyfunc_call, store
from tests.fixtures.place import place, postgres_place
from tests.fixtures.served import api, dialect
from tests.fixtures.shards import empty, spread

__all__ = [
    "api", "clock", "dialect", "empty", "place", "postgres_place", "pytest_pyfunc_call", "spread",
    "store",
]  # fmt: skip
