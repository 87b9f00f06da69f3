"""Dead letters: find them, replay or drop one, some or all."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold import Onefold, Tenant
from onefold.server.dashboard.pages import dead
from tests.dashboard.seed import LEASE, Seeded, bury, states
from tests.dashboard.visiting import Visitor


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("queue", "payments", "dead"),
        ("kind", "import_catalog", "hostile"),
        ("reason", "failed", "dead"),
        ("error_type", "tests.dashboard.seed.CardDeclined", "dead"),
    ],
)
def test_a_filter_finds_dead_letters(
    seeded: Seeded, visit: Visitor, name: str, value: str, found: str
) -> None:
    visit.open("/dead")
    assert {seeded.dead, seeded.hostile} <= set(visit.page.keys)

    visit.press("Filter", given={name: value})

    assert visit.page.keys == [getattr(seeded, found)]


def test_a_time_finds_dead_letters_and_another_text_is_an_error(
    seeded: Seeded, visit: Visitor
) -> None:
    moment = datetime.now(UTC) - timedelta(minutes=5)
    visit.open("/dead")
    visit.press("Filter", before=moment.strftime("%Y-%m-%dT%H:%M"))
    assert seeded.dead in visit.page.keys
    assert seeded.hostile not in visit.page.keys

    assert visit.open(f"/dead?from={moment:%Y-%m-%dT%H:%M}").keys == [seeded.hostile]
    visit.open("/dead?from=yesterday")
    assert "must be a time" in visit.page.one('[role="alert"]').text


def test_the_selected_dead_letters_are_replayed_once(onefold: Onefold, visit: Visitor) -> None:
    first, second, third = bury(onefold, 3)
    visit.open("/dead")

    visit.press("Replay selected", id=[first, third])

    assert visit.notice == "2 dead letters queued again."
    assert states(onefold, [first, third]) == {"ready"}
    assert states(onefold, [second]) == {"dead"}
    assert visit.page.keys == [second]


def test_the_selected_dead_letters_are_dropped_after_a_confirmation(
    onefold: Onefold, visit: Visitor
) -> None:
    made = bury(onefold, 3)
    visit.open("/dead?queue=many")

    visit.press("Drop selected", id=made[1:])
    assert "This cannot be undone." in visit.main.text
    assert states(onefold, made) == {"dead"}
    visit.press("Continue")

    # A second drop would say that the letters stayed.
    assert visit.notice == "2 dead letters dropped."
    assert states(onefold, made[1:]) == {"deleted"}
    assert states(onefold, made[:1]) == {"dead"}


def test_a_dead_letter_that_was_replayed_meanwhile_is_not_dropped(
    onefold: Onefold, visit: Visitor
) -> None:
    (job_id,) = bury(onefold, 1)
    visit.open("/dead")
    onefold.replay(job_id)

    visit.confirm("Drop selected", id=[job_id])

    assert visit.notice.startswith("!")
    assert "1 dead letter stayed" in visit.notice
    assert states(onefold, [job_id]) == {"ready"}


@pytest.mark.parametrize(
    ("verb", "after", "words"),
    [("Replay", "ready", "queued again"), ("Drop", "deleted", "dropped")],
)
def test_all_that_match_are_changed_in_batches(
    onefold: Onefold, visit: Visitor, verb: str, after: str, words: str
) -> None:
    made = bury(onefold, dead.BATCH + 5)
    others = bury(onefold, 2, queue="others", kind="bill")
    visit.open("/dead?kind=ship")

    visit.confirm(f"{verb} all that match")
    assert visit.page.one("#done").text.startswith(f"{dead.BATCH}")
    assert len(onefold.dead.find(limit=10, kind="ship")) == 5
    visit.press("Continue")

    assert f"{len(made)} dead letters {words}" in visit.page.one("#progress").text
    assert visit.page.one("progress")["value"] == "1"
    assert states(onefold, made) == {after}
    assert states(onefold, others) == {"dead"}
    visit.click("Show the dead letters")
    assert visit.at == "/dead?kind=ship"
    assert "No dead letters match" in visit.page.one(".empty").text


def test_a_letter_whose_key_a_newer_job_holds_stays_and_is_counted(
    onefold: Onefold, visit: Visitor
) -> None:
    job_id = onefold.enqueue("ship", {}, queue="many", unique_key="order:7").id
    (taken,) = onefold.deliveries.take(["many"], worker="test", lease=LEASE)
    onefold.deliveries.bury([taken], reason="failed")
    onefold.enqueue("ship", {}, queue="many", unique_key="order:7")
    visit.open("/dead")

    visit.confirm("Replay all")

    assert "1 stayed" in visit.page.one("#progress").text
    assert states(onefold, [job_id]) == {"dead"}


def test_a_tenant_replays_its_own_dead_letters_only(onefold: Onefold, visit: Visitor) -> None:
    acme: Tenant = onefold.tenant("acme")
    own, others = bury(acme, 2, queue="{acme}ship"), bury(onefold, 2)
    visit.log_in("admin", "acme")
    assert visit.open("/dead?queue=ship").keys == sorted(own)[::-1]

    visit.confirm("Replay all that match")

    assert "2 dead letters queued again" in visit.page.one("#progress").text
    assert states(onefold, others) == {"dead"}


def test_without_dead_letters_or_a_selection_the_page_says_what_to_do(
    visit: Visitor, onefold: Onefold
) -> None:
    assert "No job has failed for good." in visit.open("/dead").one(".empty").text

    bury(onefold, 1)
    visit.open("/dead?queue=many")

    visit.press("Replay selected")

    assert visit.notice.startswith("!Select one or more")
    assert visit.at == "/dead?queue=many"
