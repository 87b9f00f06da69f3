"""The report of `assert_idempotent`: what a scenario left behind, compared with one clean run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.testing.points import Point, RecordedEffect
from onefold.testing.requests import RouteResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_SHOWN: Final = 3
"""Findings that a report shows in full."""
MOST_BYTES: Final = 100
"""Bytes of a body that a report shows."""
VOLATILE: Final = "*"


class Coverage(msgspec.Struct, frozen=True):
    """What a passing check has tried."""

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
        shown = "\n\n".join(str(each) for each in findings[:MOST_SHOWN])
        more = len(findings) - MOST_SHOWN
        rest = f"\n\nAnd {more} more findings like these." if more > 0 else ""
        super().__init__(f"The handler is not idempotent ({coverage}).\n\n{shown}{rest}")


class ScenarioResult(msgspec.Struct):
    """What a scenario has left behind."""

    tables: dict[str, list[dict[str, Any]]]
    jobs: list[tuple[str, str]]
    effects: list[RecordedEffect]
    response: RouteResponse | None
    error: BaseException | None
    """What the last delivery raised, if the work did not end."""


class Comparison:
    """Compares results with that of a clean run. What differs between two clean runs is masked."""

    def __init__(self, clean: ScenarioResult, again: ScenarioResult) -> None:
        self._masked = {
            (table, column)
            for table, rows in clean.tables.items()
            for column in (rows[0] if rows else ())
            if _values(rows, column) != _values(again.tables.get(table, []), column)
        }
        self._masks_jobs = Counter(clean.jobs) != Counter(again.jobs)
        self._volatile_contents = {
            name
            for name in {each.name for each in clean.effects}
            if _contents(clean.effects, name) != _contents(again.effects, name)
        }
        self._response = clean.response
        self._masks_body = _body(clean.response) != _body(again.response)
        self._clean = self._tallies(clean)

    def _tallies(self, result: ScenarioResult) -> dict[str, Counter[str]]:
        tallies: dict[str, Counter[str]] = {}
        for table, rows in result.tables.items():
            tallies[f"row of {table}"] = Counter(self._row(table, row) for row in rows)
        tallies["job"] = Counter(
            kind if self._masks_jobs else f"{kind} {payload}" for kind, payload in result.jobs
        )
        tallies["effect"] = Counter(self._effects(result.effects))
        return tallies

    def _row(self, table: str, row: dict[str, Any]) -> str:
        shown = {
            name: VOLATILE if (table, name) in self._masked else value
            for name, value in row.items()
        }
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    def _effects(self, effects: Iterable[RecordedEffect]) -> list[str]:
        seen: set[tuple[str, str]] = set()
        shown: list[str] = []
        for each in effects:
            if each.key is not None:
                if (each.name, each.key) in seen:
                    continue
                seen.add((each.name, each.key))
            content = VOLATILE if each.name in self._volatile_contents else each.content
            shown.append(f"{each.name} {content}".strip())
        return shown

    def _responses(self, response: RouteResponse | None) -> list[str]:
        """The last response has the status and the body of the first one."""
        expected = self._response
        if expected is None or response is None:
            return []
        if expected.status != response.status:
            return [f"~ response: status {response.status} instead of {expected.status}"]
        if self._masks_body or expected.body == response.body:
            return []
        return [f"~ response: body {_short(response.body)} instead of {_short(expected.body)}"]

    def __call__(self, result: ScenarioResult) -> tuple[str, ...]:
        """The differences, one line each; nothing if there are none."""
        if result.error is not None:
            kind = type(result.error).__name__
            return (f"the work does not end: the handler raises {kind}: {result.error}",)
        lines = self._responses(result.response)
        found = self._tallies(result)
        for what in self._clean | found:
            clean, other = self._clean.get(what, Counter()), found.get(what, Counter())
            lines += [
                f"+ {what}, {_times(n)} too many: {text}" for text, n in (other - clean).items()
            ]
            lines += [
                f"- {what}, {_times(n)} missing: {text}" for text, n in (clean - other).items()
            ]
        return tuple(lines)


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


_ADVICE: Final = {
    "- effect": "the work was recorded before it was done. Do the effect first, in run.step(…), and"
    " record it afterwards, in run.transaction().",
    "+ job": "enqueue in the same transaction, run.within().enqueue(…), or with an"
    " idempotency_key.",
    "response": "answer a repeated request with the stored response: protect the route with"
    " Idempotency, and send the same Idempotency-Key.",
    "+ row": "write in run.transaction(), which completes the job in the same commit, or use an"
    " upsert: insert … on conflict (…) do nothing.",
}
"""What usually helps, by a part of the differences; the first that occurs."""


def advice(differences: Sequence[str], result: ScenarioResult, clean: ScenarioResult) -> str:
    """One sentence on what usually fixes such a difference."""
    text = "\n".join(differences)
    if result.error is not None:
        return (
            "a handler that runs again must accept that its rows exist: insert … on conflict do"
            " nothing, insert_once, or done_on=(is_unique_violation,)."
        )
    if "+ effect" in text:
        if len(_keys(result.effects)) > len(_keys(clean.effects)):
            return (
                "the key of the call differs between the attempts. Derive it from the work:"
                ' run.key("…"), or fields of the payload.'
            )
        return (
            'give the receiver a key that is the same in every attempt, run.key("…"), and record'
            ' the result: run.step("…", call). An effect without a key can always happen twice.'
        )
    if "+ row" in text and "- row" in text:
        return (
            "the new value depends on the old one. Change it in run.transaction(), so that it is"
            " committed together with the job, or guard it by a row with a unique constraint."
        )
    return next(
        (helps for part, helps in _ADVICE.items() if part in text),
        "commit everything that belongs together in one transaction: run.transaction(). What is"
        " committed before it stays if the process dies in between.",
    )
