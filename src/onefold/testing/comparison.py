"""What a scenario left behind, compared with a clean run."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

import msgspec

from onefold.testing.points import RecordedEffect
from onefold.testing.requests import RouteResponse
from onefold.testing.templates import VOLATILE, ComparedItem, Generated, Template, templates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

SUCCESS: Final = frozenset({200, 201})
MOST_BYTES: Final = 100
"""Bytes of a body that a report shows."""


class ScenarioResult(msgspec.Struct):
    """What a scenario has left behind."""

    items: list[ComparedItem]
    effects: list[RecordedEffect]
    response: RouteResponse | None
    body: ComparedItem
    """Of the response."""
    error: BaseException | None
    """What the last delivery raised, if the work did not end."""
    is_overlap: bool = False
    """Whether two deliveries ran at the same time."""
    is_late: bool = False
    """Whether a duplicate came after other work."""


def received(effects: Iterable[RecordedEffect]) -> Iterator[RecordedEffect]:
    """The effects without repetitions that their receivers recognize."""
    seen: set[tuple[str, str]] = set()
    for each in effects:
        if each.key is None or (each.name, each.key) not in seen:
            yield each
        if each.key is not None:
            seen.add((each.name, each.key))


class _Match(msgspec.Struct):
    """The generated values of a scenario, and what differs from the clean run."""

    found: dict[Generated, str]
    missing: list[Template]
    extra: list[ComparedItem]

    @property
    def differences(self) -> int:
        """How many."""
        return len(self.missing) + len(self.extra)


class Comparison:
    """Compares results with that of a clean run."""

    def __init__(
        self, clean: ScenarioResult, again: ScenarioResult, before: Collection[tuple[str, str, str]]
    ) -> None:
        """`again` is another clean run; for `before` see `templates`."""
        *made, self._body = templates(
            [*clean.items, clean.body], [*again.items, again.body], before
        )
        # Names of steps may depend on the attempt. Those that name a row have to be there.
        made = [each for each in made if each.item.what != "step" or any(each.values)]
        alike = Counter(each.skeleton for each in made)
        # Literal ones, and then those that can be at one place only.
        made.sort(key=lambda each: (any(each.values), alike[each.skeleton]))
        reverse = made[::-1]
        reverse.sort(key=lambda each: any(each.values))
        self._clean = clean
        self._orders = made, reverse
        self._only = {
            id(each) for each in made if alike[each.skeleton] == 1 or not any(each.values)
        }
        self._naming: dict[Generated, list[Template]] = defaultdict(list)
        for each in made:
            for value in each.values:
                self._naming[value].append(each)

    def __call__(self, result: ScenarioResult) -> tuple[str, ...]:
        """The differences, one line each; nothing if there are none."""
        if result.error is not None:
            error = result.error
            while isinstance(error, BaseExceptionGroup):  # of a TaskGroup
                error = cast("BaseException", error.exceptions[0])
            kind = type(error).__name__
            return (f"the work does not end: the handler raises {kind}: {error}",)
        one, other = self._orders
        match = self._matched(one, result.items)
        if match.differences:  # perhaps only in this order
            match = min(match, self._matched(other, result.items), key=lambda m: m.differences)
        return (*self._response(result, match), *self._lines(result, match))

    def _matched(self, order: Sequence[Template], items: Iterable[ComparedItem]) -> _Match:
        """Find the item of each template, and then those of templates that name the same values."""
        rest: dict[str, list[ComparedItem]] = defaultdict(list)
        for item in items:
            rest[item.what].append(item)
        match = _Match({}, [], [])
        done: set[int] = set()

        def take(template: Template) -> list[Template]:
            """Find its item; returns those that name its new values."""
            if id(template) in done:
                return []
            done.add(id(template))
            new = template.take(rest[template.item.what], match.found)
            if new is None:
                match.missing.append(template)
                return []
            match.found |= new
            return [each for value in new for each in self._naming[value]]

        # All that can be at one place only, first: their values tell others apart.
        only = [each for each in order if id(each) in self._only]
        naming = [each for template in only for each in take(template)]
        for first in (*naming, *order):
            waiting = [first]
            while waiting:
                waiting += take(waiting.pop())
        rest.pop("step", None)
        match.extra += chain.from_iterable(rest.values())
        return match

    def _response(self, result: ScenarioResult, match: _Match) -> Iterator[str]:
        """The last response has the status and the body of the first one.

        201 and 200 are alike: many routes create something, and return it to a repeated request.
        """
        expected, response = self._clean.response, result.response
        if expected is None or response is None:
            return
        if expected.status != response.status and not {expected.status, response.status} <= SUCCESS:
            yield f"~ response: status {response.status} instead of {expected.status}"
        elif self._body.take([result.body], match.found) is None:
            body = self._body.shown(match.found)["body"].encode("latin-1")
            yield f"~ response: body {_short(response.body)} instead of {_short(body)}"

    def _lines(self, result: ScenarioResult, match: _Match) -> Iterator[str]:
        for what in dict.fromkeys(each.what for each in (*self._clean.items, *result.items)):
            missing = [each for each in match.missing if each.item.what == what]
            extra = [each for each in match.extra if each.what == what]
            if what.startswith("row of "):
                yield from _changed(what, missing, extra, match.found)
            clean = Counter(_joined(what, each.shown(match.found)) for each in missing)
            other = Counter(_joined(what, each.fields) for each in extra)
            for text, number in clean.items():
                yield f"- {what}, {_times(number)} missing: {text}"
            for text, number in other.items():
                yield f"+ {what}, {_times(number)} too many: {text}"


def _changed(
    what: str, missing: list[Template], extra: list[ComparedItem], found: dict[Generated, str]
) -> Iterator[str]:
    """Take the pairs that are one row, changed; one line for each."""
    for template in tuple(missing):
        wanted = template.shown(found)
        near = max(extra, key=lambda each: _alike(wanted, each.fields), default=None)
        if near is None or not _alike(wanted, near.fields):
            continue
        missing.remove(template)
        extra.remove(near)
        same: list[str] = []
        changed: list[str] = []
        for name, text in near.fields.items():
            if template.fits(name, text, dict(found)):
                same.append(f"{name}={text}")
            else:
                changed.append(f"{name}={text} instead of {wanted.get(name)}")
        yield f"~ {what}, changed: {', '.join(changed)} ({', '.join(same)})"


def _alike(wanted: dict[str, str], fields: dict[str, str]) -> int:
    """The number of equal values that identify a row."""
    return sum(text == fields.get(name) != VOLATILE for name, text in wanted.items())


def _joined(what: str, fields: dict[str, str]) -> str:
    if what.startswith("row of "):
        return ", ".join(f"{name}={text}" for name, text in fields.items())
    return " ".join(text for name, text in fields.items() if text and name != "id")


def _short(body: bytes) -> str:
    return repr(body if len(body) <= MOST_BYTES else body[:MOST_BYTES] + b"...")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
