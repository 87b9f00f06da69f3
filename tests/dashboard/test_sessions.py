"""Who may open the dashboard, and what a session may do."""

from datetime import timedelta
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from onefold import Onefold
from onefold.model.api_key import Scope
from onefold.server.dashboard.sessions import DashboardSession
from onefold.web.http import HttpResponse
from tests.dashboard.seed import Seeded
from tests.dashboard.visiting import SECRET, Fields, Visitor
from tests.fixtures.colours import Clock, Store
from tests.fixtures.served import Api


def key_of(visit: Visitor, path: str) -> str:
    """The key of the last form on a page."""
    return visit.open(path).all('[name="onefold_key"]')[-1]["value"]


def attributes(response: HttpResponse) -> list[str]:
    """Of the cookie that a response sets."""
    return dict(response.headers)["set-cookie"].split("; ")[1:]


def logged_in(onefold: Onefold, *scopes: str, tenant: str = "") -> Visitor:
    """Another visitor, with a session of a new key."""
    visit = Visitor(onefold)
    made = onefold.api_keys.create(tenant, scopes=scopes)  # type: ignore[arg-type]  # also wrong ones
    visit.send("POST", "/login", {"key": made.text})
    return visit


def job_state(onefold: Onefold, job_id: str) -> str:
    job = onefold.get(job_id)
    assert job is not None
    return job.state


def test_a_server_without_keys_is_open_on_this_machine_and_says_so(visit: Visitor) -> None:
    note = visit.open("/").one('[role="note"]')

    assert "every process on this machine has all rights" in note.text
    assert visit.send("GET", "/jobs", host="evil.example").status == 403
    assert visit.send("GET", "/jobs", x_forwarded_for="10.0.0.1").status == 403

    page = visit.open("/jobs?notice=.Call+us+at+555.signature")

    assert page.all(".toast") == []


def test_a_visitor_without_a_session_logs_in_and_arrives_where_they_wanted(
    onefold: Onefold, seeded: Seeded, visit: Visitor
) -> None:
    made = onefold.api_keys.create(scopes=["admin"], name="Ada's key")
    visit.open(f"/jobs/{seeded.dead}")
    visit.press("Log in", key="of_wrong")
    assert "This key cannot log in." in visit.page.one('[role="alert"]').text

    visit.press("Log in", key=made.text)

    assert visit.at == f"/jobs/{seeded.dead}"
    assert "Ada's key" in visit.page.one(".visitor").text
    assert visit.page.all('[role="note"]') == []


@pytest.mark.parametrize(
    ("scope", "headers"),
    [("publish", {}), ("work", {}), ("admin", {"origin": "https://evil.example"})],
)
def test_a_key_of_a_program_and_another_site_cannot_log_in(
    onefold: Onefold, visit: Visitor, scope: Scope, headers: dict[str, str]
) -> None:
    made = onefold.api_keys.create(scopes=[scope])
    assert visit.send("POST", "/login", {"key": made.text}, **headers).status == 403
    assert visit.cookies == {}


def test_after_a_logout_the_login_is_needed_again(visit: Visitor) -> None:
    visit.log_in()

    visit.press("Log out")

    assert visit.at == "/login"
    visit.open("/jobs")
    assert visit.at == "/login?next=%2Fjobs"


def test_a_session_ends_after_twelve_hours_and_with_its_key(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    made = onefold.api_keys.create(scopes=["admin"], expires_in=timedelta(hours=20))
    first, second = Visitor(onefold), Visitor(onefold)

    first.send("POST", "/login", {"key": made.text})
    clock.advance(timedelta(hours=11))
    assert first.send("GET", "/jobs").status == 200
    clock.advance(timedelta(hours=2))
    assert first.send("GET", "/jobs").status == 303
    second.send("POST", "/login", {"key": made.text})
    assert second.send("GET", "/jobs").status == 200
    clock.advance(timedelta(hours=8))
    assert second.send("GET", "/jobs").status == 303


def test_a_changed_cookie_is_no_session_and_cookies_of_others_are_skipped(
    onefold: Onefold,
) -> None:
    visit = logged_in(onefold, "admin")
    own = visit.cookies.pop("onefold_session")
    mixed = f'seen; choice={{"a b": 1}}; onefold_session={own}; path=/'
    assert visit.send("GET", "/jobs", cookie=mixed).status == 200

    session = DashboardSession(id="a", tenant="", role="admin", name="", key="no id of a key")
    strange = visit.dashboard.sessions.cookie(session)
    for wrong in (own[:-1], f"{own}x", "a.b.c.d", "", strange):
        response = visit.send("GET", "/jobs", cookie=f"onefold_session={wrong}")
        assert response.status == 303


def test_a_cookie_of_another_server_on_this_machine_is_replaced(
    onefold: Onefold, visit: Visitor
) -> None:
    visit.cookies["onefold_session"] = "of.another.server"
    visit.open("/api-keys")

    visit.press("Create", twice=False, scope=["read"])

    assert visit.status == 200
    assert len(onefold.api_keys.find(None)) == 1


def test_a_strange_request_is_no_error_of_the_server(visit: Visitor) -> None:
    many: Fields = [(f"field{number}", "1") for number in range(2000)]

    assert visit.send("GET", f"/jobs?{urlencode(many)}").status == 200
    assert visit.send("POST", "/login", "key=x", origin="http://[").status == 403
    assert visit.send("POST", "/login", many).status == 400
    fields = {"onefold_key": key_of(visit, "/api-keys"), "do": "replay", "done": "9" * 5000}
    assert visit.send("POST", "/dead/all", fields).status == 200


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_a_stream_that_cannot_be_opened_tells_the_browser_whether_to_come_back(
    store: Store,
) -> None:
    away = Onefold("postgresql://shop@127.0.0.1:1/shop")

    gone = await Api(away, secret=SECRET)("GET", "/events")
    strange = await Api(store.open(), secret=SECRET)("GET", "/events", host="not a host")
    await away.aclose()

    assert gone.status == 200
    assert b"event: unavailable" in gone.body
    assert strange.status == 204


def test_the_cookie_is_not_for_scripts_and_other_sites(onefold: Onefold, visit: Visitor) -> None:
    fields = {"key": onefold.api_keys.create(scopes=["admin"]).text}

    plain = attributes(visit.send("POST", "/login", fields))
    behind_tls = attributes(visit.send("POST", "/login", fields, x_forwarded_proto="https"))

    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(plain)
    assert "Secure" in behind_tls


def test_a_tenant_cannot_pause_a_queue_that_is_not_there(onefold: Onefold) -> None:
    visit = logged_in(onefold, "admin", tenant="acme")

    response = visit.send("POST", "/queues/none/pause", {"onefold_key": key_of(visit, "/jobs")})

    location = dict(response.headers)["location"]
    assert parse_qs(urlsplit(location).query)["notice"][0].startswith("!")


def test_a_read_only_session_sees_everything_and_changes_nothing(
    onefold: Onefold, seeded: Seeded, visit: Visitor
) -> None:
    visit.log_in("read")
    path = f"/jobs/{seeded.ready}"
    page = visit.open(path)
    assert "read only" in page.one(".visitor").text
    assert "Payload" in page.texts("h2")
    assert page.buttons("Cancel") == []

    refused = visit.send("POST", f"{path}/cancel", {"onefold_key": key_of(visit, path)})

    assert refused.status == 403
    assert job_state(onefold, seeded.ready) == "ready"


def test_a_form_needs_a_key_of_its_own_session(onefold: Onefold, seeded: Seeded) -> None:
    path = f"/jobs/{seeded.ready}"
    visit, other = logged_in(onefold, "admin"), logged_in(onefold, "admin")
    own = key_of(visit, path)

    for key in ("", "nonsense", key_of(other, path), own[:-2]):
        fields = {"onefold_key": key} if key else {"back": "/"}
        assert visit.send("POST", f"{path}/cancel", fields).status in {400, 403}
    for headers in ({"sec_fetch_site": "cross-site"}, {"origin": "https://evil.example"}):
        answer = visit.send("POST", f"{path}/cancel", {"onefold_key": own}, **headers)
        assert answer.status == 403
    # At another tenant it is not its own.
    visit.cookies["onefold_tenant"] = "acme"
    refused = visit.send("POST", f"{path}/cancel", {"onefold_key": own})
    assert (refused.status, b"Open the page again" in refused.body) == (400, True)

    assert job_state(onefold, seeded.ready) == "ready"
    visit.cookies["onefold_tenant"] = ""
    assert visit.send("POST", f"{path}/cancel", {"onefold_key": own}).status == 303


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "/\N{LATIN SMALL LETTER U WITH DIAERESIS}",
    ],
)
def test_no_form_leads_to_another_site(onefold: Onefold, visit: Visitor, wanted: str) -> None:
    made = onefold.api_keys.create(scopes=["admin"])

    login = visit.send("POST", "/login", {"key": made.text, "next": wanted})
    fields = {"onefold_key": key_of(visit, "/jobs"), "back": wanted}
    replay = visit.send("POST", "/dead/replay", fields)

    assert dict(login.headers)["location"] == "/"
    assert dict(replay.headers)["location"].startswith("/?notice=")


def test_the_operator_sees_and_changes_what_a_chosen_tenant_has(
    onefold: Onefold, seeded: Seeded, visit: Visitor
) -> None:
    theirs = onefold.tenant("acme").enqueue("theirs", {"n": 1}, queue="{acme}mail").id
    visit.log_in("admin")

    visit.press("Show", tenant="acme")
    assert "the tenant acme" in visit.page.one('form[aria-label="Tenant"]').text
    assert visit.click("Jobs").keys == [theirs]
    visit.open(visit.page.row(theirs).one("a")["href"])
    visit.press("Cancel")
    assert visit.notice == "The job is cancelled."

    visit.press("Back to the operator")
    assert visit.at == "/"
    jobs = visit.open("/jobs").keys
    assert seeded.ready in jobs
    assert theirs not in jobs


def test_a_tenants_key_cannot_choose_another_tenant(onefold: Onefold) -> None:
    onefold.tenant("other").enqueue("theirs", {})
    visit = logged_in(onefold, "admin", tenant="acme")
    visit.cookies["onefold_tenant"] = "other"

    text = visit.open("/jobs").text

    assert "theirs" not in text
    assert "tenant acme" in text
    assert visit.send("POST", "/tenant", "tenant=No+Name").status == 400
