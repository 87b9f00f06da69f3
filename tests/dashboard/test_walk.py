"""All pages, one after the other: as a caller, a reader and a tenant must not see them."""

import pytest

from onefold import Onefold
from tests.dashboard.seed import HOSTILE, Seeded
from tests.dashboard.seed_keys import detail, pages, seed_keys
from tests.dashboard.shop_day import save_queues, save_workers
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
