"""The scenario on plain WSGI, Flask and Django."""

import pytest

from tests.http.scenario import Scenario
from tests.http.sync_apps import django_client, flask_client, wsgi_client
from tests.http.sync_modes import DJANGO, LIBRARIES, PLAIN

OURS_SQLITE, OURS_POSTGRES, LEASED_SQLITE, LEASED_POSTGRES = PLAIN


@pytest.mark.parametrize(
    ("adapter", "mode"),
    [
        (wsgi_client, OURS_SQLITE),
        (flask_client, LEASED_SQLITE),
        (django_client, DJANGO[1]),
    ],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
class TestFrameworks(Scenario):
    """Each framework, joined or leased."""


@pytest.mark.prove
@pytest.mark.parametrize("adapter", [flask_client])
@pytest.mark.parametrize("mode", [*PLAIN, *LIBRARIES], ids=str)
class TestFlaskWithLibraries(Scenario):
    """Flask, joined to transactions of the application's own library."""


@pytest.mark.prove
@pytest.mark.parametrize("adapter", [wsgi_client, django_client])
@pytest.mark.parametrize("mode", [LEASED_SQLITE, LEASED_POSTGRES], ids=str)
class TestLeased(Scenario):
    """WSGI and Django, leased."""


@pytest.mark.prove
@pytest.mark.parametrize("adapter", [django_client])
@pytest.mark.parametrize("mode", DJANGO, ids=str)
class TestDjango(Scenario):
    """Django, joined to its own transactions."""
