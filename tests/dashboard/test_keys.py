"""Keys: the list, one key, and what an operator decides about it."""

import re

import pytest
from playwright.sync_api import Page, expect

from onefold import Onefold
from onefold.model.claim import Replay, Won
from tests.dashboard.conftest import LogIn
from tests.dashboard.seed import HOSTILE, Seeded, in_thread
from tests.dashboard.seed_keys import ROUTE, detail, seed_keys
from tests.fixtures.colours import Dialect, Store

BOTH: list[Dialect] = ["sqlite", "postgres"]
UNKNOWN = ("once", "charge", "o-1043")


@pytest.fixture
def keyed(store: Store) -> None:
    """A database with keys in all states."""
    seed_keys(store)


def shown(page: Page) -> dict[str, str]:
    """The states of the listed keys."""
    found: list[list[str]] = page.locator("tbody tr").evaluate_all(
        "all => all.map(r => [r.querySelector('a').innerText, r.querySelector('.badge').innerText])"
    )
    return {key: state for key, state in found}  # noqa: C416 - lists of two


def press(page: Page, button: str, *, answer: str = "Continue") -> None:
    """Press a button, and confirm."""
    page.get_by_role("button", name=button).click()
    page.get_by_role("dialog").get_by_role("button", name=answer).dblclick()


@pytest.mark.parametrize("dialect", BOTH)
def test_the_list_has_the_keys_of_all_surfaces_with_their_states(
    keyed: None, url: str, page: Page
) -> None:
    page.goto(f"{url}/keys")

    assert shown(page) == {
        "3f1c-77aa": "unknown",
        "o-1042": "settled",
        "o-1043": "unknown",
        "o-1044": "free",
        "2026-11": "abandoned",
        "search-index": "held",
        "publish-7": "settled",
        HOSTILE: "settled",
    }


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize(
    "wanted",
    [
        ("Key", "o-1043", {"o-1043"}),
        ("Surface", "http", {"3f1c-77aa"}),
        ("Scope", "charge", {"o-1042", "o-1043", "o-1044"}),
        ("Key", "charge:o-1042", {"charge:o-1042"}),
    ],
)
def test_a_look_up_finds_keys_and_the_jobs_that_hold_them(
    seeded: Seeded, keyed: None, url: str, page: Page, wanted: tuple[str, str, set[str]]
) -> None:
    field, value, found = wanted
    page.goto(f"{url}/keys")

    page.get_by_label(field, exact=True).fill(value)
    page.get_by_role("button", name="Look up").click()

    page.wait_for_url(re.compile(f"{field.lower()}="))
    assert set(shown(page)) == found


def test_a_state_has_a_tab_and_a_key_that_is_not_there_is_free(
    keyed: None, url: str, page: Page
) -> None:
    page.goto(f"{url}/keys")
    page.get_by_role("link", name="Unknown").click()
    page.wait_for_url("**/keys?state=unknown")
    assert set(shown(page)) == {"o-1043", "3f1c-77aa"}

    page.goto(f"{url}/keys?key=never-used")
    expect(page.locator(".empty")).to_contain_text("the next request with never-used runs")


def test_unique_keys_of_jobs_need_a_key(url: str, page: Page) -> None:
    page.goto(f"{url}/keys")
    expect(page.locator(".empty")).to_contain_text("onefold.once(")

    page.goto(f"{url}/keys?surface=job")
    expect(page.get_by_role("alert")).to_contain_text("key is needed")


def test_a_long_list_has_pages(onefold: Onefold, url: str, page: Page) -> None:
    made = [f"k-{number:03}" for number in range(60)]
    for key in made:
        onefold.claim("many", key)
    page.goto(f"{url}/keys")
    first = list(shown(page))

    page.get_by_role("link", name="Next page").click()
    page.wait_for_url("**/keys?after=*")

    assert [*first, *shown(page)] == made


@pytest.mark.parametrize("dialect", BOTH)
def test_a_unique_key_shows_its_job_and_the_duplicates_that_it_absorbed(
    seeded: Seeded, url: str, page: Page
) -> None:
    page.goto(f"{url}/jobs/{seeded.completed}")
    page.get_by_role("link", name="Show what holds the key").click()
    page.get_by_role("link", name="charge:o-1042").click()

    expect(page.get_by_role("region", name="Suppressed duplicates")).to_contain_text("3")
    timeline = page.get_by_role("region", name="Timeline").get_by_role("listitem")
    expect(timeline).to_have_count(4)
    for number, request in enumerate(("req-2-8c1d", "req-1-8c1d", "req-0-8c1d")):
        expect(timeline.nth(number)).to_contain_text("A duplicate was suppressed.")
        expect(timeline.nth(number)).to_contain_text(request)
    expect(timeline.last).to_contain_text("The key was claimed.")
    why = page.get_by_role("region", name="Why")
    expect(why).to_contain_text("until the job's record is deleted")
    expect(page.get_by_role("button", name="Release")).to_have_count(0)
    why.get_by_role("link").click()
    page.wait_for_url(f"{url}/jobs/{seeded.completed}")


@pytest.mark.parametrize("dialect", BOTH)
def test_a_settled_key_shows_its_result_and_when_it_was_repeated(
    keyed: None, url: str, page: Page
) -> None:
    page.goto(url + detail("once", "charge", "o-1042"))

    expect(page.get_by_role("region", name="Why")).to_contain_text("The work is done.")
    expect(page.get_by_role("region", name="Result")).to_contain_text("ch_1042")
    expect(page.locator("#duplicates-title ~ .figure")).to_have_text("3")
    events = page.get_by_role("region", name="Timeline").locator(".badge").all_inner_texts()
    assert events == ["suppressed", "suppressed", "suppressed", "settled", "claimed"]
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("req-2-41aa")


@pytest.mark.parametrize("dialect", BOTH)
def test_a_key_with_an_unknown_outcome_is_released_once(
    onefold: Onefold, keyed: None, url: str, page: Page
) -> None:
    page.goto(url + detail(*UNKNOWN))
    expect(page.get_by_role("region", name="Why")).to_contain_text("before you decide")

    press(page, "Release")

    # A second release would say that the key was free.
    expect(page.locator(".toast")).to_contain_text("The key is released")
    expect(page.locator(".heading .badge")).to_have_text("free")
    assert isinstance(in_thread(lambda: onefold.claim("charge", "o-1043")), Won)


@pytest.mark.parametrize("dialect", BOTH)
def test_a_key_is_settled_with_the_result_that_the_operator_gives(
    onefold: Onefold, keyed: None, url: str, page: Page
) -> None:
    page.goto(url + detail(*UNKNOWN))

    page.get_by_label("Result (JSON)").fill('{"charge": "found by hand"}')
    press(page, "Settle")

    expect(page.locator(".toast")).to_contain_text("The key is settled")
    expect(page.locator(".heading .badge")).to_have_text("settled")
    answer = in_thread(lambda: onefold.claim("charge", "o-1043"))
    assert isinstance(answer, Replay)
    assert answer.result == {"charge": "found by hand"}


def test_a_key_of_a_route_is_settled_with_a_response(
    onefold: Onefold, keyed: None, url: str, page: Page
) -> None:
    page.goto(url + detail("http", ROUTE, "3f1c-77aa"))

    page.get_by_label("Status").fill("201")
    page.get_by_label("Body").fill('{"id": 7}')
    press(page, "Settle")

    expect(page.locator(".toast")).to_contain_text("The key is settled")
    found = onefold.keys.find(surface="http", scope=ROUTE, results=True)
    assert [(key.state, key.result["status"]) for key in found] == [("settled", 201)]


def test_a_confirmation_says_what_happens_and_can_be_refused(
    onefold: Onefold, keyed: None, url: str, page: Page
) -> None:
    page.goto(url + detail(*UNKNOWN))

    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("dialog")).to_contain_text("it is done again")
    page.get_by_role("dialog").get_by_role("button", name="Keep").click()

    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [key.state for key in onefold.keys.find(key="o-1043")] == ["unknown"]


def test_a_result_that_is_not_json_changes_nothing(
    onefold: Onefold, keyed: None, url: str, page: Page
) -> None:
    page.goto(url + detail(*UNKNOWN))

    page.get_by_label("Result (JSON)").fill("{no json")
    press(page, "Settle")

    expect(page.locator(".toast.failed")).to_contain_text("must be JSON")
    expect(page.locator("h1")).to_have_text("o-1043")
    assert [key.state for key in onefold.keys.find(key="o-1043")] == ["unknown"]


def test_a_visitor_who_may_only_read_sees_no_action_and_no_result(
    keyed: None, url: str, page: Page, log_in: LogIn
) -> None:
    log_in("read")
    page.goto(url + detail("once", "charge", "o-1042"))

    expect(page.locator("h1")).to_have_text("o-1042")
    expect(page.get_by_role("region", name="Result")).to_have_count(0)
    assert page.locator("main form").count() == 0


def test_a_tenant_finds_its_own_keys_only(
    onefold: Onefold, keyed: None, url: str, page: Page, log_in: LogIn
) -> None:
    onefold.tenant("acme").claim("charge", "a-1")
    onefold.tenant("acme").enqueue("mail", {}, queue="{acme}mail", idempotency_key="p-1")
    log_in("admin", "acme")

    page.goto(f"{url}/keys")

    assert set(shown(page)) >= {"a-1", "p-1"}
    assert "o-1042" not in shown(page)
    page.get_by_role("link", name="p-1").click()
    expect(page.get_by_role("region", name="Details").locator("dd").nth(1)).to_have_text("mail")
    press(page, "Release")
    expect(page.locator(".toast")).to_contain_text("The key is released")


def test_what_a_caller_has_chosen_is_never_html(keyed: None, url: str, page: Page) -> None:
    for path in ("/keys", detail("once", HOSTILE, HOSTILE)):
        page.goto(url + path)

        assert page.locator("main img").count() == 0
        assert page.title() != "1"
        expect(page.locator("main")).to_contain_text("onerror=")
    assert HOSTILE in page.locator("h1").inner_text()
    expect(page.get_by_role("region", name="Result")).to_contain_text("onerror=")


def test_the_keyboard_moves_through_the_keys(keyed: None, url: str, page: Page) -> None:
    page.goto(f"{url}/keys")
    page.keyboard.press("j")
    page.keyboard.press("Enter")

    page.wait_for_url("**/keys/detail?*")


def test_a_new_key_appears_by_itself(onefold: Onefold, keyed: None, url: str, page: Page) -> None:
    page.goto(f"{url}/keys")
    expect(page.locator("#live")).to_have_text("Live")

    in_thread(lambda: onefold.enqueue("ship", {}, idempotency_key="p-1099"))

    expect(page.get_by_role("link", name="p-1099")).to_be_visible()
