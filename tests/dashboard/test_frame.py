"""What all pages have in common: keyboard, small screens, colours, sizes, headers."""

import re
from itertools import product
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

import onefold.server.dashboard
from onefold.server.dashboard.navigation import NAVIGATION
from onefold.server.dashboard.rendering import LONGEST_JSON, STATIC, pretty_json
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import HOSTILE, Seeded

LIMIT = 200_000
CSS = STATIC.contents["onefold.css"].decode()
COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", CSS
    )
}
TEXTS = [
    *product(("text", "muted", "accent", "red"), ("background", "surface", "raised")),
    ("accent", "accent-soft"),
    ("on-accent", "accent-fill"),
    ("on-accent", "accent-hover"),
    *((name, f"{name}-soft") for name in ("grey", "blue", "violet", "amber", "green", "red")),
    *product(("blue", "violet", "amber", "green"), ("surface", "raised")),
]
SHAPES = [*product(("border-strong", "focus"), ("background", "surface"))]


def luminance(colour: str) -> float:
    """Of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_text_and_shape_has_enough_contrast(theme: int) -> None:
    pairs = [(pair, 4.5) for pair in TEXTS] + [(pair, 3.0) for pair in SHAPES]

    found = {
        pair: round(contrast(COLOURS[pair[0]][theme], COLOURS[pair[1]][theme]), 2)
        for pair, least in pairs
        if contrast(COLOURS[pair[0]][theme], COLOURS[pair[1]][theme]) < least
    }

    assert found == {}


def pages(seeded: Seeded) -> list[str]:
    """A path of every page. A new page is added here."""
    return [
        "/",
        "/?last=24h",
        "/queues",
        "/queues/email",
        "/queues/nothing",
        "/new-queue",
        "/workers",
        "/jobs",
        "/jobs?kind=nothing",
        "/jobs?id=nonsense",
        *(f"/jobs/{job_id}" for job_id in seeded),
        "/nothing-here",
        "/keys",
        "/keys?key=nothing",
        "/keys?key=charge:o-1042",
        "/keys?surface=job",
        "/keys/detail?surface=job&scope=charge_card&key=charge:o-1042",
        f"/keys/detail?surface=job&scope=import_catalog&key={quote(HOSTILE)}",
        "/dead",
        "/dead?kind=nothing",
        "/dead?from=yesterday",
        "/schedules",
        "/api-keys",
    ]


def test_all_files_and_a_page_are_small(seeded: Seeded, url: str, page: Page) -> None:
    sizes: dict[str, int] = {}
    page.on("response", lambda got: sizes.update({got.url: len(got.body())}))

    for path in pages(seeded)[:2]:
        page.goto(url + path, wait_until="load")

    static = sum(map(len, STATIC.contents.values()))
    assert static + max(sizes.values()) < LIMIT


def test_files_are_kept_for_good_and_pages_never(url: str) -> None:
    with urlopen(f"{url}/jobs") as response:
        assert response.headers["cache-control"] == "no-store"
        found = re.findall(r'"(/static/[^"]+)"', response.read().decode())
    assert len(found) >= 4
    for path in found:
        with urlopen(url + path) as response:
            assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    with urlopen(f"{url}/static/older/onefold.css") as response:
        assert response.headers["cache-control"] == "no-cache"


def test_nothing_is_inline_and_nothing_is_loaded_from_elsewhere(
    seeded: Seeded, url: str, page: Page
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    for path in pages(seeded):
        page.goto(url + path)
        assert page.locator("style, [style], script:not([src]), [onclick]").count() == 0

    assert [found for found in asked if not found.startswith(url)] == []
    folder = Path(onefold.server.dashboard.__file__).parent
    assert [file for file in folder.rglob("*.html") if "http" in file.read_text()] == []


def test_every_response_has_the_security_headers(url: str) -> None:
    with urlopen(f"{url}/jobs") as response:
        headers = response.headers

    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


UNNAMED = """
() => {
  const visible = (element) => element.checkVisibility();
  const nameOf = (element) => [
    element.ariaLabel ?? "",
    ...[...(element.labels ?? [])].map((label) => label.textContent),
    element.matches("a, button, summary") ? element.textContent : "",
  ].join("").trim();
  const count = (selector) => [...document.querySelectorAll(selector)].filter(visible).length;
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  const wrong = [...document.querySelectorAll("a, button, summary, input, select, textarea")]
    .filter((element) => visible(element) && !nameOf(element)).map((element) => element.outerHTML);
  for (const [selector, wanted] of [["h1", 1], ["main", 1], ["img:not([alt])", 0]])
    if (count(selector) !== wanted) wrong.push(`${count(selector)} ${selector}`);
  if (document.documentElement.lang !== "en") wrong.push("lang");
  if (!/^\\S.* · Onefold$/.test(document.title)) wrong.push(`title ${document.title}`);
  if (new Set(ids).size !== ids.length) wrong.push("ids repeat");
  return wrong;
}
"""
"""What a screen reader cannot tell apart, and what it looks for in vain."""


def test_every_page_has_a_title_one_heading_and_names_for_all_that_can_be_used(
    seeded: Seeded, url: str, page: Page, log_in: LogIn
) -> None:
    wrong: dict[str, list[str]] = {}
    errors: list[str] = []
    page.on("console", lambda got: errors.append(got.text) if got.type == "error" else None)
    page.goto(f"{url}/login")
    wrong["/login"] = page.evaluate(UNNAMED)
    log_in()
    for path in pages(seeded):
        response = page.goto(url + path)
        assert response is not None
        if response.status >= 400:
            errors.clear()  # The browser reports the status.
        if "text/html" in response.headers["content-type"]:
            wrong[path] = page.evaluate(UNNAMED)

    assert {path: found for path, found in wrong.items() if found} == {}
    assert errors == []


def test_the_focus_is_visible_on_all_that_can_be_used(url: str, page: Page) -> None:
    page.goto(f"{url}/queues")
    page.wait_for_selector("html[data-ready]")
    hidden: list[str] = []
    for _ in range(page.locator("a, button, input, summary").count()):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "[document.activeElement.outerHTML, getComputedStyle(document.activeElement).outline]"
        )
        if "solid 2px" not in focused[1]:
            hidden.append(focused[0])
        if "<body" in focused[0]:
            break

    assert [found for found in hidden if "<body" not in found] == []


def test_pages_fit_a_phone(seeded: Seeded, url: str, browser: Browser) -> None:
    phone = browser.new_context(viewport={"width": 375, "height": 812})
    page = phone.new_page()
    wide: dict[str, int] = {}
    for path in pages(seeded):
        page.goto(url + path)
        width: int = page.evaluate("document.documentElement.scrollWidth")
        if width > 375:
            wide[path] = width
    phone.close()

    assert wide == {}


def test_pages_without_data_fit_a_phone(url: str, page: Page) -> None:
    page.set_viewport_size({"width": 375, "height": 812})
    wide: list[str] = []
    for item in NAVIGATION:
        page.goto(url + item.path)
        if page.evaluate("document.documentElement.scrollWidth") > 375:
            wide.append(item.path)

    assert wide == []


def test_pages_fit_a_desk(seeded: Seeded, url: str, page: Page) -> None:
    wide: list[str] = []
    page.set_viewport_size({"width": 1100, "height": 800})
    for path in pages(seeded):
        page.goto(url + path)
        if page.evaluate("document.documentElement.scrollWidth") > 1100:
            wide.append(path)

    assert wide == []


def background(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_the_theme_follows_the_system_until_the_visitor_chooses(
    url: str, visitor: BrowserContext, page: Page
) -> None:
    light, dark = "rgb(246, 247, 249)", "rgb(12, 15, 20)"
    page.emulate_media(color_scheme="dark")
    page.goto(f"{url}/jobs")
    assert background(page) == dark
    page.emulate_media(color_scheme="light")
    assert background(page) == light

    page.get_by_role("button", name="Light or dark").click()
    assert background(page) == dark
    page.reload()
    assert background(page) == dark


def test_nothing_moves_for_a_visitor_who_wants_less_motion(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{url}/jobs/{seeded.ready}")

    page.get_by_role("button", name="Cancel").click()

    assert page.locator(".toast").evaluate("e => getComputedStyle(e).animationName") == "none"


def test_the_list_is_operated_by_keyboard(seeded: Seeded, url: str, page: Page) -> None:
    page.goto(f"{url}/jobs")
    keys: list[str] = page.locator("tbody tr").evaluate_all("all => all.map(r => r.dataset.key)")

    for key in ("j", "j", "k", "j"):
        page.keyboard.press(key)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    page.keyboard.press("Enter")

    assert outline == "solid"
    page.wait_for_url(f"{url}/jobs/{keys[1]}")


def test_a_question_mark_opens_the_help_and_escape_closes_it(url: str, page: Page) -> None:
    page.goto(f"{url}/jobs")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")

    page.keyboard.press("Escape")

    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_first_tab_skips_to_the_content(url: str, page: Page) -> None:
    page.goto(f"{url}/jobs")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    assert page.evaluate("document.activeElement.id") == "main"


def test_a_page_works_without_scripts(seeded: Seeded, url: str, browser: Browser) -> None:
    plain = browser.new_context(java_script_enabled=False)
    page = plain.new_page()
    page.goto(f"{url}/jobs/{seeded.ready}")

    page.get_by_role("button", name="Cancel").dblclick()

    expect(page.locator(".toast")).to_contain_text("The job is cancelled.")
    plain.close()


def test_a_long_text_full_of_quotes_is_one_token() -> None:
    shown = pretty_json({"text": '"' * LONGEST_JSON})

    assert shown.count('<span class="json-text">') == 1
    assert shown.count('<span class="json-key">') == 1
