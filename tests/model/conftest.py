"""The two databases that every machine runs on."""

from collections.abc import Iterator

import pytest

from tests.fixtures.place import Place, place, postgres_place
from tests.model.store import Store

__all__ = ["place", "postgres_place"]


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """A migrated, empty database under a clock that the test moves."""
    opened = Store(place)
    yield opened
    opened.close()
