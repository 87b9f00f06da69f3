"""A site of each test's own. What a test does not say is: FastAPI, SQLite, our own database."""

import inspect
from datetime import timedelta
from typing import Any

import pytest

from onefold import Onefold
from tests.fixtures.colours import Clock, Dialect, Store, clock, pytest_pyfunc_call, store
from tests.fixtures.connections import Effects, effects
from tests.fixtures.patience import LOCK
from tests.http.apps import AsgiClient, fastapi_app
from tests.http.scenario_modes import OURS_SQLITE
from tests.http.scenario_site import Adapter, Mode, OpenSite, Shop, Site
from tests.http.sync_apps import WSGI, WsgiClient

__all__ = ["clock", "effects", "pytest_pyfunc_call", "store"]


@pytest.fixture
def mode() -> Mode:
    """Where a payment is written; parametrize it to have others."""
    return OURS_SQLITE


@pytest.fixture
def dialect(mode: Mode) -> Dialect:
    return mode.dialect


@pytest.fixture
def adapter() -> Adapter:
    """The framework; parametrize it to have others."""
    return fastapi_app


@pytest.fixture
def onefold(store: Store, clock: Clock) -> Onefold:
    """For applications of a test's own."""
    return store.open(clock=clock)


@pytest.fixture
def open_site(
    store: Store, clock: Clock, effects: Effects, mode: Mode, adapter: Adapter
) -> OpenSite:
    """Opens the site, under options of the test's own."""

    async def open_it(*, patience: timedelta = LOCK, **options: Any) -> Site:
        onefold = store.open(clock=clock, busy_timeout=patience)
        if mode.target is not None and "takeover" not in options:
            target = mode.target(store, onefold)
            options["transaction"] = await target if inspect.isawaitable(target) else target
        elif "takeover" not in options:
            options["takeover"] = "refuse"
        shop = Shop(onefold, mode, effects, options)
        made = WsgiClient if adapter in WSGI else AsgiClient
        return Site(shop, made(adapter(shop)))

    return open_it
