"""The list of jobs, one job, and what can be done with it."""

import pytest

from onefold import NewJob, Onefold, Run
from onefold.operations import jobs
from onefold.server.dashboard.rendering import LONGEST_JSON
from onefold.testing.jobs import drain
from tests.dashboard.seed import Seeded
from tests.dashboard.visiting import Visitor


def test_the_list_has_the_newest_jobs_first_with_their_states(
    seeded: Seeded, visit: Visitor
) -> None:
    page = visit.open("/jobs")

    assert page.keys[0] == seeded.ready
    assert page.keys == sorted(page.keys, reverse=True)
    for state in ("scheduled", "ready", "running", "retrying", "awaiting", "completed", "dead"):
        assert page.row(getattr(seeded, state)).one(".badge").text == state
    visit.click("Cancelled")
    assert visit.at == "/jobs?state=cancelled"
    assert visit.page.keys == [seeded.cancelled]


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("kind", "notify_partner", "awaiting"),
        ("queue", "reports", "running"),
        ("key", "charge:o-1042", "completed"),
        ("tag", "vip", "completed"),
        ("text", "KETTLE", "completed"),
    ],
)
def test_a_filter_finds_the_jobs_that_match(
    seeded: Seeded, visit: Visitor, name: str, value: str, state: str
) -> None:
    visit.open("/jobs")

    visit.press("Filter", given={name: value})

    assert visit.page.keys == [getattr(seeded, state)]


@pytest.mark.parametrize("found", ["/jobs?kind=letter", "/jobs?text=ada", "/search?q=letter"])
def test_what_recent_jobs_do_not_have_is_looked_for_in_older_ones_on_request(
    onefold: Onefold, visit: Visitor, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    for limit in ("LOOKED", "SCANNED"):
        monkeypatch.setattr(jobs, limit, 200)
    oldest = onefold.enqueue("letter", {"to": "Ada"}).id
    onefold.enqueue_many([NewJob("email")] * 200)
    page = visit.open(found)
    assert "Looked back to 20" in page.one(".empty").text

    visit.click("Look further back")

    assert visit.page.keys == [oldest]
    assert "Look further back" not in visit.page.text


def test_an_id_finds_its_job_by_the_filter_and_by_the_search(
    seeded: Seeded, visit: Visitor
) -> None:
    assert visit.open(f"/jobs?id={seeded.dead}").keys == [seeded.dead]
    path = f"/jobs?id={seeded.dead[:8]}&state=dead&queue=payments"
    assert visit.open(path).keys == [seeded.dead]

    assert "must be" in visit.open("/jobs?id=nonsense").one('[role="alert"]').text

    visit.open(f"/search?q={seeded.dead}")
    assert visit.at == f"/jobs/{seeded.dead}"

    visit.open(f"/search?q={seeded.dead[:23]}")
    assert visit.at == f"/jobs?id={seeded.dead[:23]}"
    assert seeded.dead in visit.page.keys


def test_a_list_says_what_to_do_next_while_it_is_empty_and_has_pages_when_it_is_long(
    visit: Visitor, onefold: Onefold
) -> None:
    assert "onefold.enqueue(" in visit.open("/jobs").one(".empty").text

    visit.open("/jobs?kind=nothing")
    visit.click("Show all jobs")
    assert visit.at == "/jobs"

    made = [onefold.enqueue("count", {"number": number}).id for number in range(60)]
    first = visit.open("/jobs").keys

    assert [*first, *visit.click("Next page").keys] == sorted(made)[::-1]
    visit.click("First page")
    assert visit.at == "/jobs"


def test_the_page_of_a_job_shows_payload_steps_result_duplicates_and_each_delivery(
    seeded: Seeded, visit: Visitor, onefold: Onefold
) -> None:
    page = visit.open(f"/jobs/{seeded.completed}")

    assert '"order": "o-1042"' in page.part("Payload").text
    assert page.part("Steps").texts(".event-head .mono") == ["reserve", "charge"]
    assert "ch_o-1042" in page.part("Result").text
    assert "checkout-7f3a" in page.part("Metadata").text
    keys = page.part("Keys")
    assert keys.one(".figure").text == "3"
    assert {f"req-{number}-8c1d" for number in range(3)} == set(keys.texts("li .mono"))

    deliveries = visit.open(f"/jobs/{seeded.dead}").part("Deliveries").all("li")

    attempts = onefold.deliveries.attempts(seeded.dead)
    assert len(attempts) == 3
    for shown, attempt in zip(deliveries, reversed(attempts), strict=True):
        for part in (f"fence {attempt.fence}", attempt.worker or "", "took "):
            assert part in shown.text
        assert shown.one(".badge").text == attempt.outcome
    assert "in charge_card" in deliveries[0].one("pre").text


def test_long_values_are_shown_in_part(onefold: Onefold, visit: Visitor) -> None:
    long = ["tea"] * 15_000

    @onefold.job
    def weigh(run: Run, long: list[str]) -> list[str]:
        return run.step("weigh", lambda: long)

    job_id = weigh.using(metadata={"long": long[:6_000]}, store_result=True).enqueue(long).id
    drain(onefold)

    page = visit.open(f"/jobs/{job_id}")

    for part in ("Payload", "Steps", "Result", "Metadata"):
        text = page.part(part).one("pre").raw
        assert len(text) < LONGEST_JSON + 100
        assert text.endswith("Only the first 20,000 characters are shown.")


@pytest.mark.parametrize("job_id", ["01a1e913-0000-7000-8000-000000000000", "nonsense"])
def test_a_job_that_is_not_there_is_a_page_that_says_so(visit: Visitor, job_id: str) -> None:
    page = visit.open(f"/jobs/{job_id}")

    assert (visit.status, page.one("h1").text) == (404, "No such job")


@pytest.mark.parametrize(
    ("state", "button", "notice"),
    [
        ("ready", "Cancel", "The job is cancelled."),
        ("dead", "Replay", "The job is queued again."),
        ("cancelled", "Replay", "The job is queued again."),
        ("completed", "Run again", "The job is queued again."),
        ("scheduled", "Run now", "The job is due now."),
    ],
)
def test_a_double_click_on_an_action_does_it_once(
    seeded: Seeded, visit: Visitor, state: str, button: str, notice: str
) -> None:
    onefold, after = visit.onefold, "cancelled" if state == "ready" else "ready"
    job_id: str = getattr(seeded, state)
    before = onefold.get(job_id)
    assert before is not None
    visit.open(f"/jobs/{job_id}")

    visit.press(button)

    # A second run would say that it was done before.
    assert visit.notice == notice
    assert visit.page.one(".heading .badge").text == after
    job = onefold.get(job_id)
    assert job is not None
    assert job.state == after
    assert job.generation == before.generation + (state == "completed")


def test_run_now_makes_a_job_due_that_waits_for_its_retry(
    onefold: Onefold, seeded: Seeded, visit: Visitor
) -> None:
    before = onefold.get(seeded.retrying)
    visit.open(f"/jobs/{seeded.retrying}")

    visit.press("Run now")

    job = onefold.get(seeded.retrying)
    assert job is not None
    assert before is not None
    assert (job.state, job.attempt, job.error) == ("retrying", before.attempt, before.error)
    assert job.run_at <= before.run_at


def test_an_action_that_is_not_possible_any_more_says_why(
    onefold: Onefold, seeded: Seeded, visit: Visitor
) -> None:
    visit.open(f"/jobs/{seeded.running}")
    onefold.deliveries.acknowledge(seeded.running)

    visit.press("Cancel")

    assert visit.notice.startswith("!")
    assert "completed" in visit.notice
    assert visit.page.one(".heading .badge").text == "completed"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("charge:o-1042", "/jobs?key=charge%3Ao-1042"),
        ("render_invoice", "/jobs?kind=render_invoice"),
        ("documents", "/jobs?queue=documents"),
        ("vip", "/jobs?tag=vip"),
        ("dead", "/jobs?state=dead"),
        ("kind:unknown", "/jobs?kind=unknown"),
        ("text:kettle", "/jobs?text=kettle"),
        ("no such text", "/jobs?key=no+such+text"),
    ],
)
def test_a_search_finds_jobs_by_any_property(
    seeded: Seeded, visit: Visitor, text: str, found: str
) -> None:
    visit.open("/jobs")
    search = visit.page.one('form[role="search"]')

    visit.open(f"{search['action']}?{search.one('input')['name']}={text.replace(' ', '+')}")

    assert visit.at == found
