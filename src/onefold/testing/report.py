"""The report of `assert_idempotent`: the findings, and what usually helps."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.testing.points import Point, RecordedEffect
from onefold.testing.templates import VOLATILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onefold.testing.comparison import ScenarioResult

MOST_SHOWN: Final = 3
"""Bugs that a report shows in full."""
MOST_PLACES: Final = 4
"""Other points that it names for each."""
SECOND: Final = 1_000_000
SECOND_DIGITS: Final = 16
"""Digits of the microseconds since 1970."""


class Coverage(msgspec.Struct, frozen=True):
    """What a check has tried."""

    crash_points: int
    deliveries: int
    seconds: float
    skipped: int = 0
    """Crash points that were left out, because there are more than `max_crash_points`."""

    def __str__(self) -> str:
        """As one line."""
        left = (
            f" ({self.skipped} more were not tried: see max_crash_points)" if self.skipped else ""
        )
        return (
            f"{self.crash_points} crash points{left}, {self.deliveries} deliveries,"
            f" {self.seconds:.1f} s"
        )


class Finding(msgspec.Struct, frozen=True):
    """One scenario that left something else behind."""

    scenario: str
    point: Point | None
    differences: tuple[str, ...]
    advice: str

    @property
    def bug(self) -> tuple[str, ...]:
        """What differs, without values: the same for all findings of a bug."""
        return tuple(sorted({each.split(": ")[0].split(",")[0] for each in self.differences}))

    def __str__(self) -> str:
        """Scenario, place, difference, advice."""
        lines = [f"{self.scenario}:"]
        if self.point is not None:
            lines.append(f"  {self.point}")
            if self.point.line.text:
                lines.append(f"      {self.point.line.text}")
        lines += [f"  {each}" for each in self.differences]
        lines.append(f"  What usually helps: {self.advice}")
        return "\n".join(lines)


class NotIdempotent(AssertionError):
    """A handler left something else behind than one clean run does."""

    def __init__(self, findings: Sequence[Finding], coverage: Coverage) -> None:
        self.findings: Sequence[Finding] = findings
        self.coverage: Coverage = coverage
        bugs: dict[tuple[str, ...], list[Finding]] = {}
        for each in findings:
            bugs.setdefault(each.bug, []).append(each)
        # A bug with few differences first: another one may be a consequence of it.
        ordered = sorted(bugs.values(), key=lambda alike: len(alike[0].bug))
        shown = "\n\n".join(_described(alike) for alike in ordered[:MOST_SHOWN])
        more = len(ordered) - MOST_SHOWN
        rest = f"\n\nNot shown: {more} more. Mend these first." if more > 0 else ""
        super().__init__(f"The handler is not idempotent ({coverage}).\n\n{shown}{rest}")


def _described(alike: Sequence[Finding]) -> str:
    """The most telling finding of a bug, and where it occurs, too."""
    # One with a line of the code, and with few differences.
    told = min(alike, key=lambda each: (each.point is None, len(each.differences)))
    also = Counter(
        each.scenario.partition(",")[0] if each.point is None else _place(each.scenario, each.point)
        for each in alike
        if each is not told
    )
    places = [f"    {place}" for place in also]
    left = len(places) - MOST_PLACES
    if left > 0:
        places[MOST_PLACES:] = [f"    and at {left} more points"]
    return "\n".join([str(told), *(["  The same happens:"] if places else []), *places])


def _place(scenario: str, point: Point) -> str:
    return f"{scenario.partition(',')[0]}: {point}"


_TIME: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?P<seconds>:\d\d(?:\.\d+)?)?"
    r"(?:Z|[+-]\d\d(?::?\d\d)?)?)"
    r"|(?P<compact>(?<!\d)\d{8}[T_-]?\d{6}(?:\d{6})?Z?(?!\d))"
    r"|(?<![\d.])\d{10}(?:\d{3}){0,3}(?:\.\d+)?(?![\d.])"
    r"|(?P<clock>(?<![\d:])\d\d:\d\d:\d\d(?:\.\d+)?(?![\d:]))"
)
"""A date with a time, also without signs in between; the seconds since 1970, or milliseconds,
and so on; or a time of day."""
_MINUTE: Final = 60 * SECOND
_DAYS: Final = tuple(map(timedelta, (-1, 0, 1)))


def without_times(text: str, since: int, until: int) -> str:
    """Hide the moments between two moments, in microseconds: the present time of a check."""

    def hidden(match: re.Match[str]) -> str:
        found = _moments(match, since)
        length = _MINUTE if match["date"] and not match["seconds"] else 0
        is_present = any(
            since - SECOND <= each + length and each <= until + SECOND for each in found
        )
        return VOLATILE if is_present else match.group()

    return _TIME.sub(hidden, text)


def _moments(match: re.Match[str], since: int) -> Iterator[int]:
    """What a text may mean: a time without a zone is in UTC, or local."""
    try:
        times = list(_times(match, since))
    except ValueError:
        return
    for each in times:
        if isinstance(each, int):
            yield each
            continue
        zoned = [each] if each.tzinfo else [each.replace(tzinfo=UTC), each.astimezone()]
        yield from (int(one.timestamp() * SECOND) for one in zoned)


def _times(match: re.Match[str], since: int) -> Iterator[datetime | int]:
    text = match.group()
    if match["date"]:
        yield datetime.fromisoformat(text)
    elif match["compact"]:
        digits = re.sub(r"\D", "", text)
        yield datetime.strptime(digits[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007 - see above
    elif match["clock"]:
        today = datetime.fromtimestamp(since / SECOND, UTC).date()
        of_day = time.fromisoformat(text)
        yield from (datetime.combine(today + day, of_day) for day in _DAYS)
    else:
        whole = text.partition(".")[0]
        yield int(float(text) * 10 ** (SECOND_DIGITS - len(whole)))


def _keys(effects: Iterable[RecordedEffect]) -> Counter[tuple[str, str | None]]:
    return Counter((each.name, each.key) for each in effects)


def advice(differences: Sequence[str], result: ScenarioResult, clean: ScenarioResult) -> str:
    """One sentence on what usually fixes such a difference."""
    text = "\n".join(differences)
    has_new_key = len(_keys(result.effects)) > len(_keys(clean.effects))
    cases = {
        "late": result.is_late,
        "error": result.error is not None,
        "key": "+ effect" in text and has_new_key,
        "route": result.response is not None and "- effect" not in text,
        "+ effect": "+ effect" in text,
        "overlap": "~ row" in text and result.is_overlap,
        **{sign: sign in text for sign in ("~ row", "- effect", "+ job", "+ row")},
    }
    return _ADVICE[next((name for name, holds in cases.items() if holds), "else")]


_ADVICE: Final = {
    "late": "a late duplicate has changed what later work left. Write in run.transaction(), which"
    " completes the job in the same commit, or compare a version or a time before writing.",
    "error": "a handler that runs again must accept that its rows exist: insert … on conflict do"
    " nothing, insert_once, or done_on=(is_unique_violation,).",
    "key": "the key of the call differs between the attempts. Derive it from the work:"
    ' run.key("…"), or fields of the payload.',
    "route": "answer a repeated request with the stored response: protect the route with"
    " Idempotency, write in its transaction, and send the same Idempotency-Key.",
    "+ effect": 'give the receiver a key that is the same in every attempt, run.key("…"), and'
    ' record the result: run.step("…", call). An effect without a key can always happen twice.',
    "overlap": "two deliveries have read the same old state. Write in run.transaction(), which the"
    " slower one cannot commit, or decide in one statement: update … where status = 'new'.",
    "~ row": "the new value depends on the old one. Change it in run.transaction(), so that it is"
    " committed together with the job, or guard it by a row with a unique constraint.",
    "- effect": "the work was recorded before it was done. Do the effect first, in run.step(…), and"
    " record it afterwards, in run.transaction().",
    "+ job": "enqueue in the same transaction, run.within().enqueue(…), or with an"
    " idempotency_key.",
    "+ row": "write in run.transaction(), which completes the job in the same commit, or use an"
    " upsert: insert … on conflict (…) do nothing.",
    "else": "commit everything that belongs together in one transaction: run.transaction(). What is"
    " committed before it stays if the process dies in between.",
}
"""What usually helps, by the first case that holds."""
