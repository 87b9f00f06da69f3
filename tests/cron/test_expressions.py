"""Which moments an expression means, on the days when clocks are changed and on all others."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold import InvalidInput
from onefold.model.cron import NICKNAMES, Cron, cron_in

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def ticks(cron: Cron, start: datetime, end: datetime) -> Iterator[datetime]:
    """All ticks from a moment until another."""
    moment = cron.after(start - MINUTE)
    while moment is not None and moment < end:
        yield moment
        moment = cron.after(moment)


def shown(expression: str, zone: str, day: str, *, days: int = 1) -> list[str]:
    """What clocks show at the ticks of a day, with their offset."""
    there = ZoneInfo(zone)
    start = datetime.fromisoformat(day).replace(tzinfo=there)
    end = (datetime.fromisoformat(day) + days * DAY).replace(tzinfo=there)
    found = ticks(cron_in(expression, zone), start, end)
    return [tick.astimezone(there).strftime("%H:%M%z") for tick in found]


CHANGED_CLOCKS = [
    # When clocks go forward, an appointment that is jumped over is kept when they have jumped.
    ("Europe/Berlin", "2026-03-29", "30 2 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "2026-03-29", "0,30 2 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "2026-03-29", "30 2,3 * * *", ["03:00+0200", "03:30+0200"]),
    ("Europe/Berlin", "2026-03-29", "0 3 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "2026-03-29", "59 1 * * *", ["01:59+0100"]),
    ("America/New_York", "2026-03-08", "30 2 * * *", ["03:00-0400"]),
    ("America/New_York", "2026-03-08", "15 1-3 * * *",
     ["01:15-0500", "03:00-0400", "03:15-0400"]),
    ("Australia/Lord_Howe", "2026-10-04", "15 2 * * *", ["02:30+1100"]),
    ("Australia/Lord_Howe", "2026-10-04", "0,45 2 * * *", ["02:30+1100", "02:45+1100"]),
    # When they go back, an appointment that comes twice is kept the first time.
    ("Europe/Berlin", "2026-10-25", "30 2 * * *", ["02:30+0200"]),
    ("Europe/Berlin", "2026-10-25", "0,30 2-3 * * *",
     ["02:00+0200", "02:30+0200", "03:00+0100", "03:30+0100"]),
    ("America/New_York", "2026-11-01", "30 1 * * *", ["01:30-0400"]),
    ("Australia/Lord_Howe", "2026-04-05", "45 1 * * *", ["01:45+1100"]),
    ("Australia/Lord_Howe", "2026-04-05", "0,30 1,2 * * *",
     ["01:00+1100", "01:30+1100", "02:00+1030", "02:30+1030"]),
    # What follows the clock happens as often as it is shown.
    ("Europe/Berlin", "2026-10-25", "*/30 2 * * *",
     ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]),
    ("America/New_York", "2026-11-01", "*/30 1 * * *",
     ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"]),
    ("Australia/Lord_Howe", "2026-04-05", "*/20 1 * * *",
     ["01:00+1100", "01:20+1100", "01:40+1100", "01:40+1030"]),
    ("Australia/Lord_Howe", "2026-04-05", "*/20 3 * * *",
     ["03:00+1030", "03:20+1030", "03:40+1030"]),
]  # fmt: skip


@pytest.mark.parametrize(("zone", "day", "expression", "wanted"), CHANGED_CLOCKS)
def test_on_a_day_when_clocks_are_changed_the_rule_of_the_expression_holds(
    zone: str, day: str, expression: str, wanted: list[str]
) -> None:
    assert shown(expression, zone, day) == wanted


# --- any expression, any zone, any moment -----------------------------------------------------

ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns",
     "Africa/Casablanca", "Asia/Kolkata"]
)  # fmt: skip


class Times:
    """The minutes and hours of an expression, and the way they are written."""

    def __init__(self, minute: str, hour: str) -> None:
        self.text = f"{minute} {hour} * * *"
        self.follows_the_clock = minute.startswith("*") or hour.startswith("*")
        self._minutes = numbers(minute, 60)
        self._hours = numbers(hour, 24)

    def match(self, wall: datetime) -> bool:
        return wall.minute in self._minutes and wall.hour in self._hours

    def __repr__(self) -> str:
        return self.text


def numbers(field: str, end: int) -> set[int]:
    """`*`, `*/7`, or numbers with commas between."""
    if field.startswith("*"):
        return set(range(0, end, int(field.removeprefix("*").removeprefix("/") or 1)))
    return {int(number) for number in field.split(",")}


def fields(end: int) -> st.SearchStrategy[str]:
    lists = st.lists(st.integers(0, end - 1), min_size=1, max_size=4, unique=True)
    return st.one_of(
        st.just("*"),
        st.integers(1, end - 1).map("*/{}".format),
        lists.map(lambda numbers: ",".join(map(str, sorted(numbers)))),
        # Where most clocks are changed.
        st.sampled_from(["0", "1", "2", "1,2,3"]),
    )


TIMES = st.builds(Times, fields(60), fields(24))
CHANGES = st.sampled_from(
    ["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01",
     "2026-02-15", "2026-03-22", "2026-07-01"]
).map(lambda day: datetime.fromisoformat(day).replace(tzinfo=UTC))  # fmt: skip


def by_the_minute(times: Times, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """What the rules say, minute by minute."""
    found: list[datetime] = []
    moment, before = start, (start - MINUTE).astimezone(zone)
    while moment < end:
        there = moment.astimezone(zone)
        passed = [there.replace(tzinfo=None)]
        if not times.follows_the_clock:
            # What the clocks have just jumped over, and not what they show once more.
            wall = before.replace(tzinfo=None, fold=0) + MINUTE
            while wall < passed[0].replace(fold=0):
                passed.append(wall)
                wall += MINUTE
            passed = [] if there.fold else passed
        if any(times.match(wall) for wall in passed):
            found.append(moment)
        moment, before = moment + MINUTE, there
    return found


@given(TIMES, ZONES, CHANGES, st.integers(0, 36 * 60))
def test_ticks_are_those_that_the_rules_say(
    times: Times, zone: str, day: datetime, minutes: int
) -> None:
    start, end = day - DAY / 2 + minutes * MINUTE, day + 2 * DAY

    found = list(ticks(cron_in(times.text, zone), start, end))

    assert found == by_the_minute(times, ZoneInfo(zone), start, end)


MOMENTS = st.integers(0, 40 * 365 * 86_400_000_000).map(
    lambda micros: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
)


@given(TIMES, ZONES, MOMENTS)
def test_the_next_tick_is_later_and_the_first(times: Times, zone: str, moment: datetime) -> None:
    cron = cron_in(times.text, zone)

    found = cron.after(moment)

    assert found is not None
    assert found > moment
    assert found.microsecond == found.second == 0
    assert cron.after(found - timedelta(microseconds=1)) == found
    assert cron.after(moment + (found - moment) / 2) == found


def refused(expression: str, zone: str) -> str | None:
    """The argument that is to blame."""
    try:
        cron_in(expression, zone).after(datetime(2026, 1, 1, tzinfo=UTC))
    except InvalidInput as error:
        return error.field
    return None


FIELDS = st.text("0123456789*/-,#LWMONJA", min_size=1, max_size=6)


@given(st.lists(FIELDS, min_size=5, max_size=5).map(" ".join) | st.text(max_size=20))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    assert refused(text, "UTC") in {None, "cron"}


@given(st.text(max_size=20) | st.sampled_from(["Europe", ".", "/etc/passwd", "posixrules"]))
def test_any_text_is_a_zone_or_is_refused(text: str) -> None:
    assert refused("0 0 * * *", text) in {None, "tz"}


@pytest.mark.parametrize(("nickname", "expression"), NICKNAMES.items())
def test_a_nickname_is_an_expression(nickname: str, expression: str) -> None:
    moment = datetime(2026, 5, 5, 5, 5, tzinfo=UTC)

    assert cron_in(nickname, "UTC").after(moment) == cron_in(expression, "UTC").after(moment)


@pytest.mark.parametrize(
    ("expression", "year", "found"),
    [
        # Leap days are waited for, what never comes is not, and time ends with the year 9900.
        ("0 12 29 2 *", 2026, datetime(2028, 2, 29, 11, tzinfo=UTC)),
        ("* * 29 2 *", 2026, datetime(2028, 2, 28, 23, tzinfo=UTC)),
        ("* * */20 * 1L", 2026, None),
        ("0 0 */20 * 1L", 2026, None),
        ("* * * * *", 9901, None),
    ],
)
def test_what_comes_seldom_or_never(expression: str, year: int, found: datetime | None) -> None:
    assert cron_in(expression, "Europe/Berlin").after(datetime(year, 1, 1, tzinfo=UTC)) == found


def test_asked_while_an_hour_is_shown_again_an_appointment_in_it_is_over() -> None:
    again = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    assert again.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M%z") == "02:10+0100"

    found = cron_in("30 2 * * *", "Europe/Berlin").after(again)

    assert found == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
