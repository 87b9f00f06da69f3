"""What tests of the dashboard share: a seeded database, a visitor, a browser and its server."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page

from onefold import Onefold
from onefold.model.api_key import Scope
from onefold.server import ServerSettings, create_app
from tests.dashboard.seed import Seeded, seed
from tests.dashboard.visiting import SECRET, Visitor
from tests.fixtures.browser import browser, visitor
from tests.fixtures.colours import Store, pytest_pyfunc_call, store
from tests.fixtures.served import dialect
from tests.http.apps_talk import served

__all__ = ["browser", "dialect", "pytest_pyfunc_call", "store", "visitor"]


@pytest.fixture
def seeded(store: Store) -> Seeded:
    """A database with jobs in all states; the ids of one of each."""
    return seed(store)


@pytest.fixture
def onefold(store: Store) -> Onefold:
    """The Onefold of the dashboard."""
    return store.open()


@pytest.fixture
def visit(onefold: Onefold) -> Visitor:
    """A visitor without scripts. There are no API keys: it needs no login."""
    return Visitor(onefold)


@pytest.fixture
def url(onefold: Onefold) -> Iterator[str]:
    """A server without API keys: visitors of this machine need no login."""
    settings = ServerSettings(anonymous=True, push=False, access_log=False, secret=SECRET)
    with served(create_app(onefold, settings)) as found:
        yield found


@pytest.fixture
def page(visitor: BrowserContext) -> Iterator[Page]:
    """A tab that fails the test after an error of a script or a violation of the CSP."""
    opened = visitor.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on(
        "console",
        lambda message: (
            errors.append(message.text) if "Content Security Policy" in message.text else None
        ),
    )
    yield opened
    assert errors == []


LogIn = Callable[..., str]


@pytest.fixture
def log_in(onefold: Onefold, url: str, page: Page) -> LogIn:
    """Logs in with a new API key of the given scope; returns the id of the key."""

    def logged_in(scope: Scope = "admin") -> str:
        made = onefold.api_keys.create(scopes=[scope], name=f"{scope} of the test")
        page.goto(f"{url}/login")
        page.get_by_label("API key").fill(made.text)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{url}/")
        return made.key.id

    return logged_in
