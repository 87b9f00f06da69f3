"""What all pages have in common: colours, sizes, headers."""

import re
from itertools import product
from pathlib import Path

import pytest

import onefold.server.dashboard
from onefold.server.dashboard.rendering import LONGEST_JSON, STATIC, pretty_json
from tests.dashboard.seed import Seeded
from tests.dashboard.visiting import Visitor

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


def test_all_files_and_a_page_are_small(seeded: Seeded, visit: Visitor) -> None:
    sizes = [len(visit.send("GET", path).body) for path in ("/", "/?last=24h", "/jobs")]

    assert sum(map(len, STATIC.contents.values())) + max(sizes) < LIMIT


def test_files_are_kept_for_good_and_pages_never(visit: Visitor) -> None:
    page = visit.open("/jobs")
    links = [*page.all("head [href]"), *page.all("[src]")]
    found = {each.attributes.get("href") or each["src"] for each in links}

    assert len(found) >= 4
    for path in found:
        kept = dict(visit.send("GET", path).headers)["cache-control"]
        assert kept == "public, max-age=31536000, immutable"
    older = visit.send("GET", "/static/older/onefold.css")
    assert dict(older.headers)["cache-control"] == "no-cache"
    folder = Path(onefold.server.dashboard.__file__).parent
    assert [file for file in folder.rglob("*.html") if "http" in file.read_text()] == []


def test_every_response_has_the_security_headers(visit: Visitor) -> None:
    headers = dict(visit.send("GET", "/jobs").headers)

    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


def test_a_long_text_full_of_quotes_is_one_token() -> None:
    shown = pretty_json({"text": '"' * LONGEST_JSON})

    assert shown.count('<span class="json-text">') == 1
    assert shown.count('<span class="json-key">') == 1
