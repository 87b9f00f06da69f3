"""Live pages while the server or its stream is away."""

from pathlib import Path

from playwright.sync_api import Page, expect

from onefold import Onefold
from tests.dashboard.conftest import SECRET
from tests.dashboard.seed import in_thread
from tests.fixtures.colours import Store
from tests.fixtures.serving import serving

PATIENCE = 60_000


def test_with_a_secret_an_open_page_continues_after_a_restart_of_the_server(
    store: Store, onefold: Onefold, page: Page, tmp_path: Path
) -> None:
    key = in_thread(lambda: onefold.api_keys.create(scopes=["admin"], name="Ada"))
    with serving(store.url, folder=tmp_path, ONEFOLD_SERVE_SECRET=SECRET) as server:
        url = f"http://127.0.0.1:{server.port}"
        page.goto(f"{url}/login?next=/jobs")
        page.get_by_label("API key").fill(key.text)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{url}/jobs")
        expect(page.locator("#live")).to_have_text("Live", timeout=PATIENCE)

        server.kill()
        expect(page.locator("#live")).to_have_text("Offline", timeout=PATIENCE)
        made = in_thread(lambda: onefold.enqueue("late", {}))
        server.start()

        expect(page.locator(f'[data-key="{made.id}"]')).to_be_visible(timeout=PATIENCE)
        expect(page.locator("#live")).to_have_text("Live", timeout=PATIENCE)
        assert page.url == f"{url}/jobs"


def test_a_page_whose_stream_a_proxy_refuses_refreshes_by_itself(
    onefold: Onefold, url: str, page: Page
) -> None:
    page.clock.install()
    page.route("**/events", lambda route: route.fulfill(status=502))
    page.goto(f"{url}/jobs")
    expect(page.locator("#live")).to_have_text("Offline")

    made = in_thread(lambda: onefold.enqueue("late", {}))
    page.clock.run_for(7_000)

    expect(page.locator(f'[data-key="{made.id}"]')).to_be_visible()
    expect(page.locator("#live")).to_have_text("Live")
