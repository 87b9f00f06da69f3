"""The scenario on every framework, and a race on real threads."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.fixtures.patience import HANG
from tests.http.apps import asgi_client, starlette_client
from tests.http.apps_talk import served_wsgi
from tests.http.scenario import Scenario
from tests.http.scenario_modes import (
    BLOCKING_LIBRARIES,
    DJANGO,
    LEASED_POSTGRES,
    LEASED_SQLITE,
    LIBRARIES,
    OURS_POSTGRES,
    OURS_SQLITE,
    PLAIN,
)
from tests.http.scenario_site import ALICE, OpenSite, Shop
from tests.http.sync_apps import (
    django_app,
    django_client,
    flask_app,
    flask_client,
    wsgi_app,
    wsgi_client,
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
@pytest.mark.parametrize("mode", [*PLAIN, *BLOCKING_LIBRARIES], ids=str)
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


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (wsgi_app, OURS_POSTGRES),
        (flask_app, BLOCKING_LIBRARIES[0]),
        (django_app, LEASED_SQLITE),
    ],
)
async def test_h113_of_many_at_once_one_runs_and_none_fails(
    open_site: OpenSite, make: Callable[[Shop], Any]
) -> None:
    site = await open_site()
    headers = {"Idempotency-Key": "k", "Authorization": ALICE, "Content-Type": "text/plain"}

    with served_wsgi(make(site.shop)) as url:

        def post() -> int:
            answer = httpx.post(f"{url}/pay", content=b"{}", headers=headers, timeout=HANG)
            return answer.status_code

        statuses = await asyncio.gather(*(asyncio.to_thread(post) for _ in range(24)))

    assert set(statuses) <= {201, 409}
    assert (site.shop.runs, site.payments) == (1, [1])
