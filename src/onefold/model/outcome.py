"""How a delivery may end: values that a handler returns or raises; rules for its errors.

The values are exceptions, too, so that code deep inside of a handler can end the run.

A rule is an exception class, or a function of the error. Of several classes, the nearest to the
error decides; a function is nearer than any class. `Busy`, `OutcomeUnknown` and `LeaseLost` have a
meaning of their own: only a rule that names them applies to them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec

from onefold.errors import Busy, InvalidInput, LeaseLost, OutcomeUnknown
from onefold.model import checks
from onefold.model.retry import parse_retry_after
from onefold.model.timestamps import span

OVERLOADED_STATUSES: Final = frozenset({429, 503, 529})
"""The statuses of a server that rejects requests for a while."""

DEFAULT_RETRY_AFTER: Final = timedelta(seconds=60)
"""How long to wait if the server does not specify it."""


class Outcome(Exception):
    """The base class of the four."""


class Retry(Outcome):
    """The attempt failed; try again after `after`, or after the job's backoff."""

    __match_args__ = ("after",)

    def __init__(self, after: timedelta | None = None) -> None:
        """`after` replaces the backoff; it must not be negative."""
        if after is not None:
            span(after, "after")
        super().__init__(after)
        self.after = after


class Defer(Outcome):
    """Not now: run again after `after`. No attempt is used."""

    __match_args__ = ("after",)

    def __init__(self, after: timedelta) -> None:
        """`after` must not be negative."""
        span(after, "after")
        super().__init__(after)
        self.after = after

    @classmethod
    def from_response(cls, response: Any, *, now: datetime | None = None) -> Defer | None:
        """What a server requests by 429, 503 or 529; None for any other status.

        The delay is its Retry-After, in seconds or as a date, at most a day; 60 seconds if there
        is none, or none that can be parsed. Accepts the response of any HTTP library that has a
        status and headers.
        """
        status = getattr(response, "status_code", None) or getattr(response, "status", None)
        if status not in OVERLOADED_STATUSES:
            return None
        wanted = _retry_after(response.headers, datetime.now(UTC) if now is None else now)
        return cls(DEFAULT_RETRY_AFTER if wanted is None else wanted)


class Bury(Outcome):
    """This will never succeed: bury the job, whatever attempts remain."""

    __match_args__ = ("reason",)

    def __init__(self, reason: str) -> None:
        """`reason` is stored with the dead job."""
        super().__init__(reason)
        self.reason = reason


class Cancel(Outcome):
    """No longer wanted: stop without a failure."""

    __match_args__ = ("reason",)

    def __init__(self, reason: str) -> None:
        """`reason` is stored with the job."""
        super().__init__(reason)
        self.reason = reason


def _retry_after(headers: Any, now: datetime) -> timedelta | None:
    # Not all libraries' headers, and no plain dictionaries, ignore case.
    said = {str(name).lower(): str(value) for name, value in reversed(list(headers.items()))}
    text = said.get("retry-after")
    if text is None:
        return None
    return parse_retry_after(text, now=now, date=said.get("date"), fractions=True)


ErrorRule: TypeAlias = type[BaseException] | Callable[[BaseException], bool]

OURS: Final = (Busy, LeaseLost, OutcomeUnknown)
"""Not failures of a handler: not now, no longer ours, unknown."""


class ErrorRules(msgspec.Struct, frozen=True):
    """The error rules of a kind."""

    retry_on: tuple[ErrorRule, ...] = ()
    bury_on: tuple[ErrorRule, ...] = ()
    done_on: tuple[ErrorRule, ...] = ()

    def forgives(self, error: BaseException) -> bool:
        """True: the error means that the work is done."""
        done = _distance(self.done_on, error)
        others = (_distance(self.retry_on, error), _distance(self.bury_on, error))
        return done is not None and all(other is None or done <= other for other in others)

    def outcome_of(self, error: BaseException) -> Outcome | None:
        """`Retry` or `Bury` if a rule applies; None: the remaining attempts decide.

        With `retry_on` alone, all other errors bury the job.
        """
        retry, bury = _distance(self.retry_on, error), _distance(self.bury_on, error)
        if bury is not None and (retry is None or bury <= retry):
            return Bury(type(error).__name__)
        if retry is not None:
            return Retry()
        if self.retry_on and not self.bury_on and not isinstance(error, OURS):
            return Bury(type(error).__name__)
        return None


def error_rules(retry_on: object, bury_on: object, done_on: object) -> ErrorRules:
    """Check the error rules of a kind."""
    return ErrorRules(
        checked_rules(retry_on, "retry_on"),
        checked_rules(bury_on, "bury_on"),
        checked_rules(done_on, "done_on"),
    )


def concerns(rules: Sequence[ErrorRule], error: BaseException) -> bool:
    """Whether one of the rules applies to the error."""
    return _distance(rules, error) is not None


def checked_rules(value: object, field: str) -> tuple[ErrorRule, ...]:
    """Check a rule, or several."""
    alone = callable(value)
    listed: list[Any] = [value] if alone else checks.listed(value, field, "exceptions")
    for rule in listed:
        if not (issubclass(rule, BaseException) if isinstance(rule, type) else callable(rule)):
            raise InvalidInput(
                field,
                f"must hold classes of exceptions, or functions of an exception, got {rule!r}",
            )
    return tuple(listed)


def _distance(rules: Sequence[ErrorRule], error: BaseException) -> int | None:
    """How near the nearest rule is to the error; None if none applies."""
    lineage = inspect.getmro(type(error))
    found = [
        lineage.index(rule) + 1 if isinstance(rule, type) else 0
        for rule in rules
        if (_names(rule, error) if isinstance(rule, type) else rule(error))
    ]
    return min(found, default=None)


def _names(rule: type[BaseException], error: BaseException) -> bool:
    return isinstance(error, rule) and (not isinstance(error, OURS) or issubclass(rule, OURS))
