"""What tests of forms share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from onefold.testing.clock import Clock
from onefold.web.forms import FormKeys
from tests.fixtures.browser import browser, visitor
from tests.fixtures.colours import Dialect, Store, store
from tests.forms.shop import Shop

__all__ = ["browser", "store", "visitor"]

SECRET = "a secret that is long enough"

Opens = Callable[..., Shop]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(clock: Clock) -> FormKeys:
    return FormKeys(SECRET, clock=clock)


@pytest.fixture(params=["sqlite", "postgres"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    chosen: Dialect = request.param
    return chosen


@pytest.fixture
def engine(store: Store) -> Iterator[Engine]:
    """The application's own, on the database of the test."""
    if store.dialect == "postgres":
        url = store.url.replace("postgresql:", "postgresql+psycopg:")
        engine = create_engine(url, connect_args={"options": f"-csearch_path={store.schema}"})
    else:
        engine = create_engine(store.url)
    yield engine
    engine.dispose()


@pytest.fixture
def open_shop(store: Store, engine: Engine) -> Opens:
    """Opens a shop on the database of the test. Its orders and their keys are one commit."""

    def opened(**options: Any) -> Shop:
        if "takeover" not in options:
            options["transaction"] = engine
        return Shop(store.open(), engine, **options)

    return opened
