"""A wire that can be cut, and Onefold in both colours."""

from collections.abc import Iterator

import psycopg
import pytest

from onefold import Onefold
from tests.faults.callers import Caller, Colour, MakeCaller
from tests.faults.proxy import Proxy
from tests.faults.servers import sessions
from tests.fixtures.colours import pytest_pyfunc_call
from tests.fixtures.place import new_schema, place, postgres_place
from tests.fixtures.shards import empty

__all__ = [
    "colour",
    "empty",
    "make_caller",
    "migrated",
    "new_schema",
    "observer",
    "place",
    "postgres_place",
    "proxy",
    "pytest_pyfunc_call",
    "sessions",
]


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    """Blocking or awaited."""
    found: Colour = request.param
    return found


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """A wire to the server that all tests share."""
    proxy = Proxy(postgres_url)
    yield proxy
    proxy.close()


@pytest.fixture
def migrated(migrated_schema: str) -> str:
    """The name of a schema that has our tables."""
    return migrated_schema


@pytest.fixture
def make_caller(colour: Colour) -> Iterator[MakeCaller]:
    """Makes callers of this colour, and closes them."""
    callers: list[Caller] = []

    def make(onefold: Onefold) -> Caller:
        callers.append(Caller(onefold, colour))
        return callers[-1]

    yield make
    for caller in callers:
        caller.close()


@pytest.fixture
def observer(postgres_url: str) -> Iterator[psycopg.Connection]:
    """The test's own look at the server."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection
