"""Writes the pictures of the documentation: `make screenshots`. Not part of the tests."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from onefold import Onefold
from tests.dashboard.seed import Seeded, in_thread
from tests.dashboard.shop_day import fill_day, save_queues, save_workers

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LIMIT = 80_000


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_has_a_picture(
    onefold: Onefold, seeded: Seeded, url: str, browser: Browser, theme: str
) -> None:
    for fill in (fill_day, save_queues, save_workers):
        in_thread(lambda fill=fill: fill(onefold))
    visitor = browser.new_context(
        viewport={"width": 1280, "height": 860}, color_scheme=theme, locale="en-GB"
    )
    page = visitor.new_page()
    for name, path in (
        ("overview", "/"),
        ("jobs", "/jobs"),
        ("job", f"/jobs/{seeded.dead}"),
        ("queues", "/queues"),
    ):
        page.goto(url + path)
        page.wait_for_selector("html[data-ready]")
        file = IMAGES / f"dashboard-{name}-{theme}.png"
        page.screenshot(path=file, animations="disabled")
        assert file.stat().st_size < LIMIT
    visitor.close()
