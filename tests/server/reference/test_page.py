"""The reference page in a real browser, against a real server."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from onefold import Onefold
from onefold.server import ServerSettings, create_app
from tests.http.apps_talk import served

PUBLISH = "#operations-publish-publishJob"


@contextmanager
def opened(visitor: BrowserContext, app: Any, prefix: str = "") -> Generator[Page]:
    """The page. At the end, it has broken no policy and asked no other host."""
    with served(app) as url:
        page = visitor.new_page()
        complaints: list[str] = []
        hosts: set[str | None] = set()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda sent: hosts.add(urlsplit(sent.url).hostname))
        page.goto(f"{url}{prefix}/v1/docs")
        yield page
        page.close()
    assert hosts <= {"127.0.0.1", None, ""}, "data: has no host"
    assert not complaints


def server(onefold: Onefold) -> Any:
    return create_app(onefold, ServerSettings(anonymous=True, push=False, access_log=False))


def publish(page: Page, status: str) -> None:
    """Try the call that publishes a job, as it stands in the example."""
    operation = page.locator(PUBLISH)
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    live = operation.locator(".live-responses-table .response .response-col_status")
    expect(live).to_contain_text(status)


@pytest.mark.prove
def test_a_call_of_a_mounted_server_goes_to_that_server(
    onefold: Onefold, visitor: BrowserContext
) -> None:
    app = server(onefold)
    mounted = Starlette(routes=[Mount("/jobs", app)], lifespan=app.lifespan)

    with opened(visitor, mounted, "/jobs") as page:
        publish(page, "201")

    assert len(onefold.find()) == 1


def test_a_call_has_the_api_key_that_was_entered(onefold: Onefold, visitor: BrowserContext) -> None:
    key = onefold.api_keys.create("acme", scopes=["publish"]).text
    onefold.tenant("acme").queues.save("payments")

    with opened(visitor, server(onefold)) as page:
        page.get_by_role("button", name="Authorize").first.click()
        page.locator(".auth-container input").fill(key)
        page.locator(".auth-btn-wrapper button.authorize").click()
        page.locator(".auth-btn-wrapper button.btn-done").click()
        publish(page, "201")

        assert page.evaluate("Object.values({...localStorage, ...sessionStorage})") == []


@pytest.mark.prove
def test_the_page_follows_the_colours_of_the_system(
    onefold: Onefold, visitor: BrowserContext
) -> None:
    with opened(visitor, server(onefold)) as page:
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_class("dark-mode")
        page.emulate_media(color_scheme="light")
        expect(page.locator("html")).not_to_have_class("dark-mode")
