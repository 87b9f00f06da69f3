"""What the tests behind PgBouncer share."""

import pytest

from tests.fixtures.colours import pytest_pyfunc_call
from tests.fixtures.pgbouncer import PgBouncer, pgbouncer, pgbouncers
from tests.pgbouncer.places import PooledPlace
from tests.race.crew import crew

__all__ = ["crew", "pgbouncer", "pgbouncers", "pytest_pyfunc_call"]


@pytest.fixture
def place(pgbouncer: PgBouncer, postgres_schema: str) -> PooledPlace:
    """Behind PgBouncer, migrated through it."""
    place = PooledPlace(pgbouncer.url, postgres_schema)
    with place.open() as onefold:
        onefold.migrate()
    return place
