"""Callers' connections: a test that asks for `kind` runs with them."""

import pytest

from tests.fixtures.colours import Coloured, Store, pytest_pyfunc_call, store
from tests.fixtures.connection import Kind
from tests.fixtures.connections import EVERY, effects

__all__ = ["effects", "pytest_pyfunc_call", "store"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The kind says the database and the colour; without `every_kind`, one of each library."""
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "kind" in metafunc.fixturenames and ("kind", "dialect") not in given:
        every = metafunc.definition.get_closest_marker("every_kind") is not None
        kinds = [kind for kind in EVERY if every or kind.is_common]
        pairs = [(kind, kind.dialect) for kind in kinds]
        metafunc.parametrize(("kind", "dialect"), pairs, ids=[kind.name for kind in kinds])


@pytest.fixture
def onefold(store: Store, kind: Kind) -> Coloured:
    """An Onefold of the kind's colour."""
    return Coloured(store.open(), kind.colour)
