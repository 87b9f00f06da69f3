"""The report of `assert_idempotent`: what a scenario left behind, compared with one clean run."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from onefold.testing.points import Point, RecordedEffect
from onefold.testing.requests import RouteResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MOST_SHOWN: Final = 3
"""Bugs that a report shows in full."""
MOST_PLACES: Final = 4
"""Other points that it names for each."""
SUCCESS: Final = frozenset({200, 201})
SECOND: Final = 1_000_000
SECOND_DIGITS: Final = 16
"""Digits of the microseconds since 1970."""
MOST_BYTES: Final = 100
"""Bytes of a body that a report shows."""
VOLATILE: Final = "*"


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


class ScenarioResult(msgspec.Struct):
    """What a scenario has left behind."""

    tables: dict[str, list[dict[str, Any]]]
    jobs: list[tuple[str, str]]
    effects: list[RecordedEffect]
    response: RouteResponse | None
    error: BaseException | None
    """What the last delivery raised, if the work did not end."""
    is_overlap: bool = False
    """Whether two deliveries ran at the same time."""
    is_late: bool = False
    """Whether a duplicate came after other work."""


class Comparison:
    """Compares results with that of a clean run. What differs between two clean runs is masked."""

    def __init__(
        self, clean: ScenarioResult, again: ScenarioResult, mask: Callable[[str], str]
    ) -> None:
        """`mask` hides the present time: two clean runs may be in the same second."""
        self._masked = {
            (table, column)
            for table, rows in clean.tables.items()
            for column in (rows[0] if rows else ())
            if _values(rows, column) != _values(again.tables.get(table, []), column)
        }
        self._mask = mask
        self._masks_jobs = Counter(clean.jobs) != Counter(again.jobs)
        self._volatile_contents = {
            name
            for name in {each.name for each in clean.effects}
            if _contents(clean.effects, name) != _contents(again.effects, name)
        }
        self._clean = clean
        self._masks_body = _body(clean.response) != _body(again.response)

    def __call__(self, result: ScenarioResult) -> tuple[str, ...]:
        """The differences, one line each; nothing if there are none."""
        if result.error is not None:
            error = result.error
            while isinstance(error, BaseExceptionGroup):  # of a TaskGroup
                error = cast("BaseException", error.exceptions[0])
            kind = type(error).__name__
            return (f"the work does not end: the handler raises {kind}: {error}",)
        lines = self._responses(result.response)
        for table in self._clean.tables | result.tables:
            lines += self._rows(
                table, self._clean.tables.get(table, []), result.tables.get(table, [])
            )
        for what, texts in (("job", self._jobs), ("effect", self._effects)):
            lines += _differing(what, texts(self._clean), texts(result))
        return tuple(lines)

    def _rows(
        self, table: str, expected: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]
    ) -> list[str]:
        """A changed row, in one line; and rows that are missing, or too many."""
        clean = [self._shown(table, row) for row in expected]
        other = [self._shown(table, row) for row in found]
        missing, extra = _without(clean, other), _without(other, clean)
        lines: list[str] = []
        for row in tuple(missing):
            near = max(extra, key=lambda each: _alike(row, each), default=None)
            if near is None or not _alike(row, near):
                continue
            missing.remove(row)
            extra.remove(near)
            same = ", ".join(f"{name}={near[name]}" for name in near if row.get(name) == near[name])
            changed = ", ".join(
                f"{name}={near[name]} instead of {row.get(name)}"
                for name in near
                if row.get(name) != near[name]
            )
            lines.append(f"~ row of {table}, changed: {changed} ({same})")
        return lines + _differing(f"row of {table}", map(_joined, missing), map(_joined, extra))

    def _shown(self, table: str, row: dict[str, Any]) -> dict[str, str]:
        return {
            name: VOLATILE if (table, name) in self._masked else self._mask(_text(value))
            for name, value in row.items()
        }

    def _jobs(self, result: ScenarioResult) -> list[str]:
        return [
            kind if self._masks_jobs else f"{kind} {self._mask(payload)}"
            for kind, payload in result.jobs
        ]

    def _effects(self, result: ScenarioResult) -> list[str]:
        seen: set[tuple[str, str]] = set()
        shown: list[str] = []
        for each in result.effects:
            if each.key is not None:
                if (each.name, each.key) in seen:
                    continue
                seen.add((each.name, each.key))
            is_volatile = each.name in self._volatile_contents
            content = VOLATILE if is_volatile else self._mask(each.content)
            shown.append(f"{each.name} {content}".strip())
        return shown

    def _responses(self, response: RouteResponse | None) -> list[str]:
        """The last response has the status and the body of the first one.

        201 and 200 are alike: many routes create something, and return it to a repeated request.
        """
        expected = self._clean.response
        if expected is None or response is None:
            return []
        if expected.status != response.status and not {expected.status, response.status} <= SUCCESS:
            return [f"~ response: status {response.status} instead of {expected.status}"]
        bodies = [self._mask(each.body.decode("latin-1")) for each in (expected, response)]
        if self._masks_body or bodies[0] == bodies[1]:
            return []
        return [f"~ response: body {_short(response.body)} instead of {_short(expected.body)}"]


def _without(
    rows: Sequence[dict[str, str]], others: Sequence[dict[str, str]]
) -> list[dict[str, str]]:
    rest = list(others)
    found: list[dict[str, str]] = []
    for row in rows:
        if row in rest:
            rest.remove(row)
        else:
            found.append(row)
    return found


def _alike(row: dict[str, str], other: dict[str, str]) -> int:
    """The number of equal values that identify a row."""
    return sum(value == other.get(name) != VOLATILE for name, value in row.items())


def _joined(row: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())


def _differing(what: str, expected: Iterable[str], found: Iterable[str]) -> list[str]:
    clean, other = Counter(expected), Counter(found)
    return [
        *(f"- {what}, {_times(n)} missing: {text}" for text, n in (clean - other).items()),
        *(f"+ {what}, {_times(n)} too many: {text}" for text, n in (other - clean).items()),
    ]


def _text(value: object) -> str:
    return value.isoformat(" ") if isinstance(value, datetime) else repr(value)


_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d(?::?\d\d)?)?"
    r"|(?<![\d.])\d{10}(?:\d{3}){0,3}(?:\.\d+)?(?![\d.])"
)
"""A date with a time, or the seconds since 1970, or milliseconds, and so on."""


def without_times(text: str, since: int, until: int) -> str:
    """Hide the moments between two moments, in microseconds: the present time of a check."""

    def hidden(match: re.Match[str]) -> str:
        found = match.group()
        is_present = any(since - SECOND <= each <= until + SECOND for each in _moments(found))
        return VOLATILE if is_present else found

    return _TIME.sub(hidden, text)


def _moments(text: str) -> Iterator[int]:
    """What a text may mean: a time without a zone is in UTC, or local."""
    if "-" not in text:
        whole = text.partition(".")[0]
        yield int(float(text) * 10 ** (SECOND_DIGITS - len(whole)))
        return
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return
    for each in [moment] if moment.tzinfo else [moment.replace(tzinfo=UTC), moment.astimezone()]:
        yield int(each.timestamp() * SECOND)


def _body(response: RouteResponse | None) -> bytes:
    return b"" if response is None else response.body


def _short(body: bytes) -> str:
    return repr(body if len(body) <= MOST_BYTES else body[:MOST_BYTES] + b"...")


def _values(rows: Sequence[dict[str, Any]], column: str) -> Counter[str]:
    return Counter(repr(row.get(column)) for row in rows)


def _keys(effects: Iterable[RecordedEffect]) -> Counter[tuple[str, str | None]]:
    return Counter((each.name, each.key) for each in effects)


def _contents(effects: Iterable[RecordedEffect], name: str) -> Counter[str]:
    return Counter(each.content for each in effects if each.name == name)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


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
