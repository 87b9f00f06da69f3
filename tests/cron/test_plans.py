"""What a due schedule has to make up for, by its policy."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold import InvalidInput, NewJob, Unique
from onefold.errors import ConflictingOptions
from onefold.model.schedule import (
    Broken,
    CatchUp,
    Plan,
    Schedule,
    first_tick,
    load,
    new_schedule,
    newest,
    plan,
)
from onefold.model.timestamps import LATEST, MICROSECOND, from_micros, to_micros

START = to_micros(datetime(2026, 3, 1, tzinfo=UTC), "start")
MINUTE = timedelta(minutes=1) // MICROSECOND
DAY = 24 * 60 * MINUTE


def schedule(cron: str, catch_up: CatchUp = "latest", *, most: int = 100, **said: Any) -> Schedule:
    wanted = new_schedule(
        NewJob("report", {"to": 1}, **said),
        "acme",
        name="s",
        cron=cron,
        tz="Europe/Berlin",
        catch_up=catch_up,
        catch_up_most=most if catch_up == "all" else None,
    )
    next_tick = first_tick(cron, "Europe/Berlin", START)
    stored = Schedule.from_row(
        (*list(wanted.row.values())[:-1], False, False, next_tick, None, START)
    )
    assert stored == _replaced(
        wanted, next_tick=from_micros(next_tick), updated_at=from_micros(START)
    )
    return stored


def next_tick_of(schedule: Schedule) -> int:
    assert schedule.next_tick is not None
    return to_micros(schedule.next_tick, "next_tick")


def one_by_one(cron: str, first: int, now: int) -> list[int]:
    found = [first]
    read = load(cron, "Europe/Berlin")
    while True:
        following = read.after(datetime.fromtimestamp(found[-1] / 1_000_000, UTC))
        assert following is not None
        if to_micros(following, "tick") > now:
            return found
        found.append(to_micros(following, "tick"))


EXPRESSIONS = st.sampled_from(
    ["* * * * *", "*/5 * * * *", "0 * * * *", "30 2 * * *", "*/7 1-3 * * *", "0 3 1 * *"]
)


@given(EXPRESSIONS, st.integers(0, 45 * 24 * 60), st.integers(1, 30))
def test_the_newest_ticks_are_found_without_going_through_all(
    cron: str, minutes: int, most: int
) -> None:
    first = first_tick(cron, "Europe/Berlin", START)
    now = first + minutes * MINUTE

    found = newest(load(cron, "Europe/Berlin"), first, now, most=most)

    assert found == one_by_one(cron, first, now)[-most:]


@given(EXPRESSIONS, st.sampled_from(get_args(CatchUp)), st.integers(0, 3 * DAY))
def test_a_plan_is_what_the_policy_says(cron: str, catch_up: CatchUp, late: int) -> None:
    due = schedule(cron, catch_up, most=5)
    now = next_tick_of(due) + late
    every = one_by_one(cron, next_tick_of(due), now)

    planned = plan(due, now)

    assert isinstance(planned, Plan)
    wanted = {
        "skip": [tick for tick in every[-1:] if now - tick <= MINUTE],
        "latest": every[-1:],
        "all": every[-5:],
    }
    assert list(planned.ticks) == wanted[catch_up]
    assert planned.next_tick == first_tick(cron, "Europe/Berlin", now)
    assert planned.next_tick > now


def test_one_whose_zone_is_not_known_here_waits_for_another_process() -> None:
    due = schedule("0 * * * *")
    broken = plan(_replaced(due, tz="Mars/Olympus"), next_tick_of(due))

    assert isinstance(broken, Broken)
    assert (broken.tenant, broken.schedule) == ("acme", "s")
    assert "Mars/Olympus" in broken.reason


def test_without_cronsim_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "onefold.model.cron", raising=False)
    monkeypatch.setitem(sys.modules, "cronsim", None)

    with pytest.raises(InvalidInput, match=r"pip install 'onefold\[cron\]'"):
        load("0 * * * *", "UTC")


def test_one_that_has_fired_for_the_last_time_is_due_never() -> None:
    due = _replaced(schedule("0 0 * * *"), cron="0 0 */20 * 1L")
    planned = plan(due, next_tick_of(due))

    assert isinstance(planned, Plan)
    assert planned.ticks == (next_tick_of(due),)
    assert planned.next_tick == LATEST


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("run_at", {"run_at": datetime(2026, 1, 1, tzinfo=UTC)}),
        ("expires_at", {"expires_at": datetime(2026, 1, 1, tzinfo=UTC)}),
        ("idempotency_key", {"idempotency_key": "k"}),
        ("request_id", {"request_id": "r"}),
        ("trace", {"trace": {"a": "b"}}),
        ("tick", {"tick": datetime(2026, 1, 1, tzinfo=UTC)}),
        ("unique", {"unique": Unique(bucket=timedelta(hours=1))}),
    ],
)
def test_what_is_said_of_one_job_cannot_be_said_of_many(field: str, said: Any) -> None:
    with pytest.raises(ConflictingOptions) as caught:
        schedule("0 * * * *", **said)

    assert caught.value.field == field


def _replaced(due: Schedule, **fields: Any) -> Schedule:
    return msgspec.structs.replace(due, **fields)
