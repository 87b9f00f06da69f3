"""Two tenants of one server, on each database in turn."""

import pytest

from tests.fixtures.colours import Clock, Store
from tests.fixtures.served import Api
from tests.server.tenancy.neighbours import Neighbour, Neighbours


@pytest.fixture
def neighbours(store: Store, clock: Clock) -> Neighbours:
    """Whoever has a key here; nobody else is let in."""
    return Neighbours(Api(store.open(clock=clock), anonymous=False), store)


@pytest.fixture
def acme(neighbours: Neighbours) -> Neighbour:
    return neighbours.called("acme")


@pytest.fixture
def rival(neighbours: Neighbours) -> Neighbour:
    return neighbours.called("rival")
