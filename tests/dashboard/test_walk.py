"""All pages: what a caller, a reader and a tenant must not see, and what they have in common."""

import re
from itertools import product
from pathlib import Path

import pytest

import onefold.server.dashboard
from onefold import Onefold
from onefold.server.dashboard.rendering import LONGEST_JSON, STATIC, pretty_json
from tests.dashboard.seed import HOSTILE, Seeded
from tests.dashboard.seed_keys import detail, pages, save_queues, save_workers, seed_keys
from tests.dashboard.visiting import Visitor
from tests.fixtures.colours import Store


@pytest.fixture
def paths(onefold: Onefold, store: Store, seeded: Seeded) -> list[str]:
    """The paths of all pages of a shop with everything."""
    seed_keys(store)
    save_queues(onefold)
    save_workers(onefold)
    onefold.schedules.save("odd", "@daily", kind="audit", payload={"note": HOSTILE})
    onefold.api_keys.create(scopes=["read"], name=HOSTILE)
    more = [
        "/queues/payments",
        "/queues/partners",
        "/queues/email",
        detail("once", HOSTILE, HOSTILE),
    ]
    return [*pages(seeded), *more]


def test_what_a_caller_has_chosen_is_never_html(
    seeded: Seeded, visit: Visitor, paths: list[str]
) -> None:
    visit.log_in()
    shown = dict.fromkeys(paths, "")
    for path in paths:
        visit.open(path)
        assert visit.main.all("img") + visit.main.all("script") == [], path
        assert visit.page.one("title").raw.endswith(" · Onefold")
        shown[path] = visit.main.raw

    for path in ("/jobs", "/dead", "/keys", "/api-keys", detail("once", HOSTILE, HOSTILE)):
        assert "onerror=" in shown[path], path
    hostile = visit.open(f"/jobs/{seeded.hostile}")
    assert HOSTILE in hostile.part("Keys").text
    assert HOSTILE in hostile.part("Deliveries").one("pre").text


def test_who_may_only_read_sees_no_action_no_secret_and_no_result(
    visit: Visitor, paths: list[str]
) -> None:
    visit.log_in("read")
    for path in paths:
        visit.open(path)
        sent = [form for form in visit.main.all("form") if form.is_a('[method="post"]')]
        assert sent + visit.main.all('[type="checkbox"]') == [], path
        assert "whsec_" not in visit.page.raw, path
        assert not {"New queue", "Edit"} & set(visit.page.texts("a")), path

    assert "Result" not in visit.open(detail("once", "charge", "o-1042")).texts("h2")
    for path in ("/new-queue", "/queues/payments/edit"):
        visit.open(path)
        assert visit.status == 403


def test_a_tenant_sees_nothing_that_is_another_s(
    onefold: Onefold, seeded: Seeded, visit: Visitor, paths: list[str]
) -> None:
    acme = onefold.tenant("acme")
    own = acme.enqueue("theirs", {"n": 1}, queue="{acme}mail").id
    acme.schedules.save("own", "@daily", kind="own")
    visit.log_in("admin", "acme")
    for path in paths:
        visit.open(path)
        lists = visit.main.all("tbody tr") + visit.main.all(".schedule")
        assert {row.attributes.get("data-key", own) for row in lists} <= {
            own,
            "mail",
            "own",
        } or path == "/api-keys"
        if path.startswith("/jobs/"):
            assert visit.status == 404, path

    assert visit.open("/jobs").keys == [own]
    visit.press("Filter", queue="mail")
    assert visit.page.keys == [own]
    assert visit.open("/schedules").texts(".schedule h2") == ["own"]


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


def test_no_more_of_a_value_is_encoded_than_is_shown() -> None:
    encoded = 0

    class Member:
        def __str__(self) -> str:
            nonlocal encoded
            encoded += 1
            return "one"

    shown = pretty_json([Member()] * LONGEST_JSON)

    assert 0 < encoded < LONGEST_JSON / len('  "one",')
    assert shown.endswith("<em>… Only the first 20,000 characters are shown.</em>")


def test_a_value_that_fits_is_shown_whole() -> None:
    assert "Only the first" not in pretty_json("x" * (LONGEST_JSON - 2))
    assert "Only the first" in pretty_json("x" * (LONGEST_JSON - 1))
