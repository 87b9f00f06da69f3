"""Real couriers on real databases, and endpoints on loopback that answer as they are told to."""

import pytest

from onefold import Onefold
from tests.fixtures.colours import Store, pytest_pyfunc_call, store
from tests.fixtures.place import place, postgres_place
from tests.fixtures.served import dialect

__all__ = ["dialect", "place", "postgres_place", "pytest_pyfunc_call", "store"]


@pytest.fixture
def onefold(store: Store) -> Onefold:
    return store.open()
