"""What tests of the dashboard share: a seeded database, a server on loopback, a visitor."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page

from onefold import Onefold
from onefold.model.api_key import Scope
from onefold.server import ServerSettings, create_app
from tests.dashboard.seed import Seeded, seed
from tests.fixtures.browser import browser, visitor
from tests.fixtures.colours import Dialect, Store, store
from tests.forms.serving import serving

__all__ = ["browser", "store", "visitor"]

SECRET = "the secret of the dashboard's tests"


@pytest.fixture
def dialect() -> Dialect:
    """SQLite, unless a test asks for both: `@pytest.mark.parametrize("dialect", …)`."""
    return "sqlite"


@pytest.fixture
def seeded(store: Store) -> Seeded:
    """A database with jobs in all states; the ids of one of each."""
    return seed(store)


@pytest.fixture
def onefold(store: Store) -> Onefold:
    """The Onefold of the server."""
    return store.open()


@pytest.fixture
def url(onefold: Onefold) -> Iterator[str]:
    """A server without API keys: visitors of this machine need no login."""
    settings = ServerSettings(anonymous=True, push=False, access_log=False, secret=SECRET)
    with serving(create_app(onefold, settings)) as found:
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
    """Logs in with a new API key of the given scope and tenant; returns the id of the key."""

    def logged_in(scope: Scope = "admin", tenant: str = "") -> str:
        made = onefold.api_keys.create(tenant, scopes=[scope], name=f"{scope} of the test")
        page.goto(f"{url}/login")
        page.get_by_label("API key").fill(made.text)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{url}/")
        return made.key.id

    return logged_in
