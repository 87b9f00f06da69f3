"""The scenario on plain ASGI, Starlette and FastAPI."""

import pytest

from tests.http.apps import asgi_client, starlette_client
from tests.http.scenario import Scenario
from tests.http.scenario_modes import (
    LEASED_POSTGRES,
    LEASED_SQLITE,
    LIBRARIES,
    OURS_POSTGRES,
    OURS_SQLITE,
)


@pytest.mark.parametrize("mode", [OURS_POSTGRES, LEASED_SQLITE], ids=str)
class TestFastapi(Scenario):
    """On our own database."""


@pytest.mark.prove
@pytest.mark.parametrize("mode", [OURS_SQLITE, LEASED_POSTGRES, *LIBRARIES], ids=str)
class TestFastapiWithLibraries(Scenario):
    """Joined to transactions of the application's own library."""


@pytest.mark.parametrize("mode", [OURS_SQLITE], ids=str)
@pytest.mark.parametrize("adapter", [starlette_client])
class TestStarlette(Scenario):
    """As FastAPI, but for dependencies."""


@pytest.mark.parametrize("mode", [LEASED_POSTGRES], ids=str)
@pytest.mark.parametrize("adapter", [asgi_client])
class TestPlain(Scenario):
    """Claims before the application is called."""
