"""The dashboard below a path of another application."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from onefold import Onefold
from onefold.server import ServerSettings, create_app
from tests.dashboard.django_project import PASSWORD
from tests.dashboard.seed import Seeded
from tests.fixtures.colours import Dialect, Store
from tests.http.apps_talk import served


@pytest.fixture
def dialect() -> Dialect:
    """The path has nothing to do with the database."""
    return "sqlite"


def test_mounted_in_starlette_all_links_have_the_prefix(
    onefold: Onefold, seeded: Seeded, page: Page
) -> None:
    server = create_app(onefold, ServerSettings(anonymous=True, push=False, access_log=False))
    app = Starlette(routes=[Mount("/tools/onefold", server)], lifespan=server.lifespan)
    with served(app) as url:
        page.goto(f"{url}/tools/onefold")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.wait_for_url(f"{url}/tools/onefold/jobs")
        expect(page.locator("#live")).to_have_text("Live")
        page.locator(f'[data-key="{seeded.ready}"] a').click()
        page.wait_for_url(f"{url}/tools/onefold/jobs/{seeded.ready}")

        page.get_by_role("button", name="Cancel").dblclick()

        expect(page.locator(".toast")).to_contain_text("The job is cancelled.")
        links: list[str] = page.locator("a[href], [src]").evaluate_all(
            "all => all.map(e => e.getAttribute('href') ?? e.getAttribute('src'))"
        )
        assert [link for link in links if not link.startswith(("/tools/onefold/", "#"))] == []
        page.goto("about:blank")  # closes the stream, which a stop would wait for


@pytest.fixture(params=["wsgi", pytest.param("asgi", marks=pytest.mark.prove)])
def project(request: pytest.FixtureRequest, tmp_path: Path, store: Store) -> Iterator[str]:
    """The URL of the dashboard in a Django project."""
    command = [sys.executable, "-m", "tests.dashboard.django_project", request.param]
    process = subprocess.Popen([*command, str(tmp_path), store.url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"{process.stdout.readline().decode().strip()}/tools/onefold"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def log_in(page: Page, project: str, user: str) -> None:
    page.context.clear_cookies()
    page.goto(f"{project}/")
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def test_in_django_a_superuser_acts_and_staff_may_look_and_others_may_not(
    onefold: Onefold, seeded: Seeded, project: str, page: Page
) -> None:
    page.clock.install()
    log_in(page, project, "boss")
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.wait_for_url(f"{project}/jobs")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator(".visitor")).to_contain_text("boss")
    made = onefold.enqueue("late", {})
    page.clock.run_for(7_000)
    expect(page.locator(f'[data-key="{made.id}"]')).to_be_visible()
    page.locator(f'[data-key="{seeded.ready}"] a').click()
    page.wait_for_url(f"{project}/jobs/{seeded.ready}")
    page.get_by_role("button", name="Cancel").dblclick()
    expect(page.locator(".toast")).to_contain_text("The job is cancelled.")
    expect(page.get_by_role("button", name="Log out")).to_have_count(0)

    log_in(page, project, "staff")
    page.goto(f"{project}/jobs/{made.id}")
    expect(page.locator(".visitor")).to_contain_text("read only")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)

    log_in(page, project, "customer")
    response = page.goto(f"{project}/jobs")
    assert response is None or response.status != 200 or "login" in page.url
