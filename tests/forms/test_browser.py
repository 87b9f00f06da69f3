"""Forms in a real browser: double clicks, the back button, tabs, a slow answer (H221-H230)."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.fixtures.patience import HANG
from tests.forms.conftest import Opens
from tests.forms.shop import Shop
from tests.http.apps_talk import served
from tests.http.scenario_site import Gate

KEY = "input[name=onefold_key]"


@pytest.fixture
def shop(open_shop: Opens) -> Shop:
    return open_shop()


@pytest.fixture
def url(shop: Shop) -> Iterator[str]:
    with served(shop.app) as url:
        yield url


def open_form(visitor: BrowserContext, url: str) -> Page:
    """The form in a new tab."""
    page = visitor.new_page()
    page.goto(f"{url}/orders/new")
    return page


def middle_of_button(page: Page) -> tuple[float, float]:
    """Where a mouse clicks: Playwright itself clicks on nothing while a page waits for another."""
    box = page.locator("button").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def expect_order(page: Page, number: int, what: str) -> None:
    expect(page.locator("h1")).to_have_text(f"Order {number}")
    expect(page.locator("#what")).to_have_text(what)


def test_h221_a_double_click_orders_once(shop: Shop, url: str, visitor: BrowserContext) -> None:
    page = open_form(visitor, url)
    page.fill("[name=what]", "tea")

    page.dblclick("button")

    expect_order(page, 1, "tea")
    assert shop.orders() == ["tea"]


def test_h222_back_edit_and_submit_again_offers_to_submit_as_new(
    open_shop: Opens, visitor: BrowserContext
) -> None:
    shop = open_shop(keeps_pages=True)
    with served(shop.app) as url:
        page = open_form(visitor, url)
        page.fill("[name=what]", "tea")
        page.fill("[name=note]", "two\nlines")
        page.click("button")
        expect_order(page, 1, "tea")

        # A page that the browser has kept, and its key with it.
        page.go_back()
        page.fill("[name=what]", "coffee")
        page.click("button")
        expect(page.locator("h1")).to_have_text("You have submitted this form before")
        assert shop.orders() == ["tea"]
        page.get_by_role("button", name="Submit as new").click()

        expect_order(page, 2, "coffee")
    assert shop.orders() == ["tea", "coffee"]


@pytest.mark.prove
def test_h229_the_back_button_brings_a_new_key(
    shop: Shop, url: str, visitor: BrowserContext
) -> None:
    page = open_form(visitor, url)
    first = page.get_attribute(KEY, "value")
    page.fill("[name=what]", "tea")
    page.click("button")
    expect_order(page, 1, "tea")

    page.go_back()

    assert page.get_attribute(KEY, "value") != first


def test_the_wait_page_looks_again_until_the_order_is_there(
    open_shop: Opens, visitor: BrowserContext
) -> None:
    shop = open_shop(takeover="refuse", wait=None)
    with served(shop.app) as url:
        page = open_form(visitor, url)
        page.fill("[name=what]", "tea & <biscuits>")
        page.fill("[name=note]", "two\nlines")
        button = middle_of_button(page)
        shop.gate = Gate()
        page.mouse.click(*button)
        assert shop.gate.entered.wait(HANG)

        page.mouse.click(*button)
        expect(page.locator("h1")).to_have_text("We are working on it")
        # It submits by itself, and is told the same.
        with page.expect_response("**/orders") as told:
            pass
        assert told.value.status == 409
        shop.gate.opened.set()

        expect_order(page, 1, "tea & <biscuits>")
    assert shop.orders() == ["tea & <biscuits>"]
