"""The scenario on plain WSGI, Flask and Django."""

import pytest

from tests.http.scenario import Scenario
from tests.http.sync_apps import django_client, flask_client, wsgi_client
from tests.http.sync_modes import DJANGO, LIBRARIES, PLAIN


@pytest.mark.parametrize("adapter", [wsgi_client, flask_client])
@pytest.mark.parametrize("mode", PLAIN, ids=str)
class TestFrameworks(Scenario):
    """Plain WSGI and Flask on our own database, joined and leased."""


@pytest.mark.parametrize("adapter", [flask_client])
@pytest.mark.parametrize("mode", LIBRARIES, ids=str)
class TestFlaskWithLibraries(Scenario):
    """Flask, joined to transactions of the application's own library."""


@pytest.mark.parametrize("adapter", [django_client])
@pytest.mark.parametrize("mode", [*DJANGO, *PLAIN[2:]], ids=str)
class TestDjango(Scenario):
    """Django, joined to its own transactions, and leased."""
