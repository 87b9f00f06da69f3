"""Who may open the dashboard, and what a session may do."""

import re
from datetime import timedelta
from http.client import HTTPConnection
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Page, expect

from onefold import Onefold
from onefold.server import ServerSettings, create_app
from tests.dashboard.conftest import SECRET, LogIn
from tests.dashboard.seed import Seeded
from tests.fixtures.colours import Clock, Store
from tests.forms.serving import serving


class Answer:
    """A response, without a browser."""

    def __init__(self, url: str, method: str, path: str, body: str = "", **headers: str) -> None:
        host = urlsplit(url).netloc
        connection = HTTPConnection(host)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if method == "POST":
            named.setdefault("content-type", "application/x-www-form-urlencoded")
        connection.request(method, path, body, named)
        response = connection.getresponse()
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()
        connection.close()

    @property
    def cookie(self) -> str:
        return self.headers["set-cookie"].partition(";")[0]

    @property
    def key(self) -> str:
        """The key of the first action on the page."""
        found = re.findall(r'name="onefold_key" value="([^"]+)"', self.text)
        assert found
        return str(found[-1])


def logged_in(url: str, onefold: Onefold, *scopes: str, tenant: str = "") -> Answer:
    made = onefold.api_keys.create(tenant, scopes=scopes)  # type: ignore[arg-type]  # also wrong ones
    return Answer(url, "POST", "/login", urlencode({"key": made.text}))


def test_a_server_without_keys_is_open_on_this_machine_and_says_so(url: str, page: Page) -> None:
    page.goto(url)

    expect(page.get_by_role("note")).to_contain_text("every process on this machine has all rights")


def test_a_server_without_keys_is_closed_to_other_sites(url: str) -> None:
    assert Answer(url, "GET", "/jobs", host="evil.example").status == 403
    assert Answer(url, "GET", "/jobs", x_forwarded_for="10.0.0.1").status == 403


def test_a_visitor_without_a_session_logs_in_and_arrives_where_they_wanted(
    onefold: Onefold, seeded: Seeded, url: str, page: Page
) -> None:
    made = onefold.api_keys.create(scopes=["admin"], name="Ada's key")
    page.goto(f"{url}/jobs/{seeded.dead}")
    page.get_by_label("API key").fill("of_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This key cannot log in.")

    page.get_by_label("API key").fill(made.text)
    page.get_by_role("button", name="Log in").click()

    page.wait_for_url(f"{url}/jobs/{seeded.dead}")
    expect(page.locator(".visitor")).to_contain_text("Ada's key")
    expect(page.get_by_role("note")).to_have_count(0)


@pytest.mark.parametrize("scope", ["publish", "work"])
def test_a_key_of_a_program_cannot_log_in(onefold: Onefold, url: str, scope: str) -> None:
    answer = logged_in(url, onefold, scope)

    assert answer.status == 403
    assert "set-cookie" not in answer.headers


def test_after_a_logout_the_login_is_needed_again(log_in: LogIn, url: str, page: Page) -> None:
    log_in()

    page.get_by_role("button", name="Log out").click()

    page.wait_for_url(f"{url}/login")
    page.goto(f"{url}/jobs")
    page.wait_for_url(f"{url}/login?next=%2Fjobs")


def test_a_revoked_key_ends_its_sessions_also_of_an_open_page(
    onefold: Onefold, log_in: LogIn, url: str, page: Page
) -> None:
    key_id = log_in()
    expect(page.locator("#live")).to_have_text("Live")

    onefold.api_keys.revoke(key_id)
    onefold.enqueue("any", {})

    page.wait_for_url(f"{url}/login")


def test_a_session_ends_after_twelve_hours_and_with_its_key(store: Store) -> None:
    clock = Clock()
    onefold = store.open(clock=clock)
    made = onefold.api_keys.create(scopes=["admin"], expires_in=timedelta(hours=20))
    settings = ServerSettings(push=False, access_log=False, secret=SECRET)
    with serving(create_app(onefold, settings)) as url:
        first = Answer(url, "POST", "/login", urlencode({"key": made.text})).cookie
        clock.advance(timedelta(hours=11))
        assert Answer(url, "GET", "/jobs", cookie=first).status == 200
        clock.advance(timedelta(hours=2))
        assert Answer(url, "GET", "/jobs", cookie=first).status == 303
        second = Answer(url, "POST", "/login", urlencode({"key": made.text})).cookie
        assert Answer(url, "GET", "/jobs", cookie=second).status == 200
        clock.advance(timedelta(hours=8))
        assert Answer(url, "GET", "/jobs", cookie=second).status == 303


def test_a_changed_cookie_is_no_session(onefold: Onefold, url: str) -> None:
    cookie = logged_in(url, onefold, "admin").cookie
    assert Answer(url, "GET", "/jobs", cookie=cookie).status == 200

    for wrong in (cookie[:-1], f"{cookie}x", "onefold_session=a.b.c.d", "onefold_session="):
        assert Answer(url, "GET", "/jobs", cookie=wrong).status == 303


def test_a_cookie_of_another_server_on_this_machine_is_replaced(onefold: Onefold, url: str) -> None:
    other = "onefold_session=of.another.server"

    first = Answer(url, "GET", "/api-keys", cookie=other)
    fields = urlencode({"onefold_key": first.key, "scope": "read"})
    made = Answer(url, "POST", "/api-keys", fields, cookie=first.cookie)

    assert made.status == 200
    assert len(onefold.api_keys.find(None)) == 1


def test_cookies_of_other_applications_are_skipped(onefold: Onefold, url: str) -> None:
    cookie = logged_in(url, onefold, "admin").cookie

    answer = Answer(url, "GET", "/jobs", cookie=f'seen; choice={{"a b": 1}}; {cookie}; path=/')

    assert answer.status == 200


def test_a_form_that_is_out_of_date_says_what_to_do(onefold: Onefold, url: str) -> None:
    cookie = logged_in(url, onefold, "admin").cookie

    for fields in ({}, {"onefold_key": "of.an.earlier.server"}):
        answer = Answer(url, "POST", "/dead/all", urlencode(fields), cookie=cookie)
        assert answer.status == 400
        assert "Nothing was done. Open the page again" in answer.text


def test_a_strange_request_is_no_error_of_the_server(url: str) -> None:
    many = "&".join(f"field{number}=1" for number in range(2000))

    assert Answer(url, "GET", "/events", host="not a host").status == 204
    assert Answer(url, "GET", f"/jobs?{many}").status == 200
    assert Answer(url, "POST", "/login", "key=x", origin="http://[").status == 403
    assert Answer(url, "POST", "/login", many).status == 400
    page = Answer(url, "GET", "/api-keys")
    fields = urlencode({"onefold_key": page.key, "do": "replay", "done": "9" * 5000})
    assert Answer(url, "POST", "/dead/all", fields, cookie=page.cookie).status == 200


def test_the_list_of_dead_letters_never_leads_to_another_site(onefold: Onefold, url: str) -> None:
    cookie = logged_in(url, onefold, "admin").cookie
    key = Answer(url, "GET", "/jobs", cookie=cookie).key
    fields = urlencode({"onefold_key": key, "back": "//evil.example"})

    answer = Answer(url, "POST", "/dead/replay", fields, cookie=cookie)

    assert answer.headers["location"].startswith("/?notice=")


def test_a_stream_without_a_database_ends_so_that_the_browser_tries_again() -> None:
    settings = ServerSettings(anonymous=True, push=False, access_log=False, secret=SECRET)
    with (
        Onefold("postgresql://shop@127.0.0.1:1/shop") as away,
        serving(create_app(away, settings)) as url,
    ):
        answer = Answer(url, "GET", "/events")

    assert answer.status == 200
    assert "event: unavailable" in answer.text


def test_the_cookie_is_not_for_scripts_and_other_sites(onefold: Onefold, url: str) -> None:
    attributes = logged_in(url, onefold, "admin").headers["set-cookie"].split("; ")[1:]

    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(attributes)


def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_only(onefold: Onefold, url: str) -> None:
    made = onefold.api_keys.create(scopes=["admin"])

    fields = urlencode({"key": made.text})
    answer = Answer(url, "POST", "/login", fields, x_forwarded_proto="https")

    assert "Secure" in answer.headers["set-cookie"].split("; ")


def test_a_tenant_cannot_pause_a_queue_that_is_not_there(onefold: Onefold, url: str) -> None:
    cookie = logged_in(url, onefold, "admin", tenant="acme").cookie
    key = Answer(url, "GET", "/jobs", cookie=cookie).key

    answer = Answer(
        url, "POST", "/queues/none/pause", urlencode({"onefold_key": key}), cookie=cookie
    )

    assert parse_qs(urlsplit(answer.headers["location"]).query)["notice"][0].startswith("!")


def test_a_read_only_session_sees_everything_and_changes_nothing(
    onefold: Onefold, seeded: Seeded, url: str, log_in: LogIn, page: Page
) -> None:
    log_in("read")
    expect(page.locator(".visitor")).to_contain_text("read only")
    page.goto(f"{url}/jobs/{seeded.ready}")
    expect(page.get_by_role("region", name="Payload")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)

    answer = logged_in(url, onefold, "read")
    shown = Answer(url, "GET", f"/jobs/{seeded.ready}", cookie=answer.cookie)
    fields = urlencode({"onefold_key": shown.key})
    refused = Answer(url, "POST", f"/jobs/{seeded.ready}/cancel", fields, cookie=answer.cookie)

    assert refused.status == 403
    job = onefold.get(seeded.ready)
    assert job is not None
    assert job.state == "ready"


def test_a_form_needs_a_key_of_its_own_session(onefold: Onefold, seeded: Seeded, url: str) -> None:
    path = f"/jobs/{seeded.ready}"
    cookie = logged_in(url, onefold, "admin").cookie
    other = logged_in(url, onefold, "admin").cookie
    others_key = Answer(url, "GET", path, cookie=other).key
    own_key = Answer(url, "GET", path, cookie=cookie).key

    for key in ("", "nonsense", others_key, own_key[:-2]):
        fields = urlencode({"onefold_key": key} if key else {"back": "/"})
        assert Answer(url, "POST", f"{path}/cancel", fields, cookie=cookie).status in {400, 403}
    for headers in ({"sec_fetch_site": "cross-site"}, {"origin": "https://evil.example"}):
        fields = urlencode({"onefold_key": own_key})
        answer = Answer(url, "POST", f"{path}/cancel", fields, cookie=cookie, **headers)
        assert answer.status == 403

    job = onefold.get(seeded.ready)
    assert job is not None
    assert job.state == "ready"
    done = Answer(url, "POST", f"{path}/cancel", urlencode({"onefold_key": own_key}), cookie=cookie)
    assert done.status == 303


def test_another_site_cannot_log_a_visitor_in(onefold: Onefold, url: str) -> None:
    made = onefold.api_keys.create(scopes=["admin"])

    answer = Answer(
        url, "POST", "/login", urlencode({"key": made.text}), origin="https://evil.example"
    )

    assert answer.status == 403
    assert "set-cookie" not in answer.headers


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
def test_a_login_never_leads_to_another_site(onefold: Onefold, url: str, wanted: str) -> None:
    made = onefold.api_keys.create(scopes=["admin"])

    answer = Answer(url, "POST", "/login", urlencode({"key": made.text, "next": wanted}))

    assert answer.headers["location"] == "/"


def test_a_notice_cannot_be_made_up(url: str) -> None:
    answer = Answer(url, "GET", "/jobs?notice=.Call+us+at+555.signature")

    assert "555" not in answer.text.partition("<main")[2].partition("toasts")[2]


def test_a_tenant_sees_only_its_own_jobs(
    onefold: Onefold, seeded: Seeded, url: str, log_in: LogIn, page: Page
) -> None:
    own = onefold.tenant("acme").enqueue("theirs", {"n": 1}, queue="{acme}mail").id

    log_in("admin", "acme")
    page.goto(f"{url}/jobs")

    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("theirs")
    page.get_by_label("Queue", exact=True).fill("mail")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/jobs?*queue=mail*")
    expect(page.locator(f'[data-key="{own}"]')).to_be_visible()
    response = page.goto(f"{url}/jobs/{seeded.ready}")
    assert response is not None
    assert response.status == 404


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_operator_sees_and_changes_what_a_chosen_tenant_has(
    onefold: Onefold, seeded: Seeded, url: str, log_in: LogIn, page: Page
) -> None:
    theirs = onefold.tenant("acme").enqueue("theirs", {"n": 1}, queue="{acme}mail").id
    log_in("admin")

    page.get_by_text("Show a tenant").click()
    page.get_by_label("Tenant", exact=True).fill("acme")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("form", name="Tenant")).to_contain_text("the tenant acme")
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator(f'[data-key="{theirs}"] a').click()
    page.get_by_role("button", name="Cancel").dblclick()
    expect(page.locator(".toast")).to_contain_text("The job is cancelled.")

    page.get_by_role("button", name="Back to the operator").click()
    page.wait_for_url(f"{url}/")
    page.goto(f"{url}/jobs")
    expect(page.locator(f'[data-key="{seeded.ready}"]')).to_be_visible()
    assert page.locator(f'[data-key="{theirs}"]').count() == 0


def test_a_form_of_one_tenants_page_does_nothing_at_another(
    onefold: Onefold, seeded: Seeded, url: str
) -> None:
    cookie = logged_in(url, onefold, "admin").cookie
    shown = Answer(url, "GET", f"/jobs/{seeded.ready}", cookie=cookie)
    form = urlencode({"onefold_key": shown.key, "back": "/jobs"})

    path = f"/jobs/{seeded.ready}/cancel"
    elsewhere = Answer(url, "POST", path, form, cookie=f"{cookie}; onefold_tenant=acme")
    here = Answer(url, "POST", path, form, cookie=cookie)

    assert (elsewhere.status, here.status) == (400, 303)


def test_a_tenants_key_cannot_choose_another_tenant(onefold: Onefold, url: str) -> None:
    onefold.tenant("other").enqueue("theirs", {})
    cookie = logged_in(url, onefold, "admin", tenant="acme").cookie

    answer = Answer(url, "GET", "/jobs", cookie=f"{cookie}; onefold_tenant=other")

    assert "theirs" not in answer.text
    assert "tenant acme" in answer.text
    assert Answer(url, "POST", "/tenant", "tenant=No+Name", cookie=cookie).status == 400
