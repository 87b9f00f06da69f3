"""Keys: the list, one key, and what an operator decides about it."""

import pytest

from onefold import Onefold
from onefold.model.claim import Replay, Won
from tests.dashboard.seed import HOSTILE, Seeded
from tests.dashboard.seed_keys import ROUTE, detail, seed_keys
from tests.dashboard.visiting import Visitor
from tests.fixtures.colours import Store

UNKNOWN = ("once", "charge", "o-1043")


@pytest.fixture
def keyed(store: Store) -> None:
    """A database with keys in all states."""
    seed_keys(store)


def shown(visit: Visitor) -> dict[str, str]:
    """The states of the listed keys."""
    return {row.one(".row-link").raw: row.one(".badge").text for row in visit.page.all("tbody tr")}


def test_the_list_has_the_keys_of_all_surfaces_with_their_states(
    keyed: None, visit: Visitor
) -> None:
    visit.open("/keys")

    assert shown(visit) == {
        "3f1c-77aa": "unknown",
        "o-1042": "settled",
        "o-1043": "unknown",
        "o-1044": "free",
        "2026-11": "abandoned",
        "search-index": "held",
        "publish-7": "settled",
        HOSTILE: "settled",
    }
    visit.click("Unknown")
    assert visit.at == "/keys?state=unknown"
    assert set(shown(visit)) == {"o-1043", "3f1c-77aa"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"key": "o-1043"}, {"o-1043"}),
        ({"surface": "http"}, {"3f1c-77aa"}),
        ({"scope": "charge"}, {"o-1042", "o-1043", "o-1044"}),
        ({"key": "charge:o-1042"}, {"charge:o-1042"}),
    ],
)
def test_a_look_up_finds_keys_and_the_jobs_that_hold_them(
    seeded: Seeded, keyed: None, visit: Visitor, given: dict[str, str], found: set[str]
) -> None:
    visit.open("/keys")

    visit.press("Look up", given=given)

    assert set(shown(visit)) == found


@pytest.mark.parametrize("key", ["msg_2f1c", "72d3162e-cc78-11e3-81ab-4c9367dc0958"])
def test_a_search_for_a_key_without_a_job_shows_the_key(
    onefold: Onefold, visit: Visitor, key: str
) -> None:
    onefold.claim("github:pushes", key, surface="webhook")

    for text in (key, f"key:{key}"):
        visit.open(f"/search?q={text}")

        assert visit.at == f"/keys?key={key}"
        assert set(shown(visit)) == {key}


def test_without_a_key_the_page_says_what_to_do(keyed: None, visit: Visitor) -> None:
    empty = visit.open("/keys?key=never-used").one(".empty")
    assert "the next request with never-used runs" in empty.text

    assert "key is needed" in visit.open("/keys?surface=job").one('[role="alert"]').text


def test_a_long_list_has_pages(onefold: Onefold, visit: Visitor) -> None:
    assert "onefold.once(" in visit.open("/keys").one(".empty").text
    made = [f"k-{number:03}" for number in range(60)]
    for key in made:
        onefold.claim("many", key)
    visit.open("/keys")
    first = list(shown(visit))

    visit.click("Next page")

    assert [*first, *shown(visit)] == made


def test_a_unique_key_shows_its_job_and_the_duplicates_that_it_absorbed(
    seeded: Seeded, visit: Visitor
) -> None:
    visit.open(f"/jobs/{seeded.completed}")
    visit.click("Show what holds the key")
    page = visit.click("charge:o-1042")

    assert "3" in page.part("Suppressed duplicates").text
    *suppressed, claimed = page.part("Timeline").all("li")
    for event, request in zip(suppressed, ("req-2", "req-1", "req-0"), strict=True):
        assert "A duplicate was suppressed." in event.text
        assert f"{request}-8c1d" in event.text
    assert "The key was claimed." in claimed.text
    why = page.part("Why")
    assert "until the job's record is deleted" in why.text
    assert page.buttons("Release") == []
    assert why.one("a")["href"] == f"/jobs/{seeded.completed}"


def test_a_settled_key_shows_its_result_and_when_it_was_repeated(
    keyed: None, visit: Visitor
) -> None:
    page = visit.open(detail("once", "charge", "o-1042"))

    assert "The work is done." in page.part("Why").text
    assert "ch_1042" in page.part("Result").text
    assert page.part("Suppressed duplicates").one(".figure").text == "3"
    events = page.part("Timeline").texts(".badge")
    assert events == ["suppressed", "suppressed", "suppressed", "settled", "claimed"]
    assert "req-2-41aa" in page.part("Timeline").text


def test_a_key_with_an_unknown_outcome_is_released_once(
    onefold: Onefold, keyed: None, visit: Visitor
) -> None:
    page = visit.open(detail(*UNKNOWN))
    assert "before you decide" in page.part("Why").text

    assert "it is done again" in visit.confirm("Release")

    # A second release would say that the key was free.
    assert visit.notice.startswith("The key is released")
    assert visit.page.one(".heading .badge").text == "free"
    assert isinstance(onefold.claim("charge", "o-1043"), Won)


def test_a_key_is_settled_with_the_result_that_the_operator_gives(
    onefold: Onefold, keyed: None, visit: Visitor
) -> None:
    visit.open(detail(*UNKNOWN))

    visit.confirm("Settle", result='{\n  "charge": "\\"found\\" <by> hand"\n}')

    assert visit.notice.startswith("The key is settled")
    assert visit.page.one(".heading .badge").text == "settled"
    answer = onefold.claim("charge", "o-1043")
    assert isinstance(answer, Replay)
    assert answer.result == {"charge": '"found" <by> hand'}


def test_a_key_of_a_route_is_settled_with_a_response(
    onefold: Onefold, keyed: None, visit: Visitor
) -> None:
    visit.open(detail("http", ROUTE, "3f1c-77aa"))

    visit.confirm("Settle", status="201", body='{"id": 7}')

    assert visit.notice.startswith("The key is settled")
    found = onefold.keys.find(surface="http", scope=ROUTE, results=True)
    assert [(key.state, key.result["status"]) for key in found] == [("settled", 201)]


def test_a_question_that_is_refused_and_a_result_that_is_not_json_change_nothing(
    onefold: Onefold, keyed: None, visit: Visitor
) -> None:
    visit.open(detail(*UNKNOWN))
    visit.press("Release")
    visit.click("Keep")
    assert visit.at == detail(*UNKNOWN)

    visit.confirm("Settle", result="{no json")

    assert visit.notice.startswith("!")
    assert "must be JSON" in visit.notice
    assert visit.page.one("h1").text == "o-1043"
    assert [key.state for key in onefold.keys.find(key="o-1043")] == ["unknown"]


def test_a_tenant_finds_its_own_keys_only(onefold: Onefold, keyed: None, visit: Visitor) -> None:
    onefold.tenant("acme").claim("charge", "a-1")
    onefold.tenant("acme").enqueue("mail", {}, queue="{acme}mail", idempotency_key="p-1")
    visit.log_in("admin", "acme")

    visit.open("/keys")

    assert set(shown(visit)) >= {"a-1", "p-1"}
    assert "o-1042" not in shown(visit)
    visit.click("p-1")
    assert visit.page.part("Details").texts("dd")[1] == "mail"
    visit.confirm("Release")
    assert visit.notice.startswith("The key is released")
