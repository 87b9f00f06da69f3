"""Backoff: how long a failed job waits before its next attempt. Pure; chance is an argument.

Retry-After: parse it from responses, and write it for our own.
"""

from __future__ import annotations

import math
import random as dice
import re
import sys
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.timestamps import MICROSECOND, Duration, duration_field, set_durations, span

if TYPE_CHECKING:
    from collections.abc import Callable


class Backoff:
    """How long a failed job waits before its next attempt: `Exponential` or `Fixed`.

    On the wire, the member `type` tells which; without it, it is exponential.
    """

    __slots__ = ()

    def wait(self, attempt: int, random: Callable[[], float] = dice.random) -> timedelta:
        """How long to wait after this attempt; the first is 1."""
        raise NotImplementedError


class Exponential(
    msgspec.Struct,
    Backoff,
    frozen=True,
    rename="camel",
    forbid_unknown_fields=True,
    tag_field="type",
    tag="exponential",
):
    """`base`, multiplied by `factor` with every attempt, at most `cap`.

    With full jitter the wait is a random part of that, so that jobs that failed together do not
    retry together.
    """

    base: Duration = duration_field(seconds=1)
    """The wait after the first attempt."""
    factor: float = 2.0
    """The wait is multiplied by this with every further attempt."""
    cap: Duration = duration_field(hours=1)
    """The longest wait."""
    jitter: Literal["full", "none"] = "full"
    """`full`: a random part of the wait. `none`: the whole wait."""

    def __post_init__(self) -> None:
        """Reject invalid values by the name of the field."""
        span(self.base, "base", least=MICROSECOND)
        span(self.cap, "cap", least=MICROSECOND)
        if self.cap < self.base:
            raise ConflictingOptions("cap", f"must not be shorter than base, got {self.cap}")
        _check_factor(self.factor)
        if self.jitter not in ("full", "none"):
            raise InvalidInput("jitter", f'must be "full" or "none", got {self.jitter!r}')
        set_durations(self, "base", "cap")

    def wait(self, attempt: int, random: Callable[[], float] = dice.random) -> timedelta:
        """How long to wait after this attempt; the first is 1."""
        _check_attempt(attempt)
        longest = self._longest(attempt)
        return longest * random() if self.jitter == "full" else longest

    def _longest(self, attempt: int) -> timedelta:
        try:
            growth = float(self.factor) ** (attempt - 1)
        except OverflowError:
            return self.cap
        # Compared as numbers: as a timedelta the product could be out of range.
        if growth >= self.cap / self.base:
            return self.cap
        return self.base * growth


class Fixed(
    msgspec.Struct,
    Backoff,
    frozen=True,
    rename="camel",
    forbid_unknown_fields=True,
    tag_field="type",
    tag="fixed",
):
    """The same delay after every attempt. A delay of zero retries at once."""

    delay: Duration = msgspec.field(name="base")
    """The wait after every attempt."""

    def __post_init__(self) -> None:
        """Reject an invalid delay."""
        span(self.delay, "delay")
        set_durations(self, "delay")

    def wait(self, attempt: int, random: Callable[[], float] = dice.random) -> timedelta:
        """How long to wait after this attempt; the first is 1. There is no randomness."""
        del random
        _check_attempt(attempt)
        return self.delay


def _check_attempt(attempt: int) -> None:
    if attempt < 1:
        raise InvalidInput("attempt", f"is counted from 1, got {attempt}")


def _check_factor(factor: object) -> None:
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise InvalidInput("factor", f"must be a number, got {factor!r}")
    if not 1 <= factor <= sys.float_info.max:
        raise InvalidInput("factor", f"must be finite and at least 1, got {factor!r}")


DEFAULT_BACKOFF: Final[Backoff] = Exponential()


LONGEST: Final = timedelta(days=1)
"""A longer Retry-After is cut to a day."""

# ASCII only: `\d` and float() accept the digits of other scripts.
_SECONDS: Final = re.compile(r"[0-9]{1,400}")
_FRACTION: Final = re.compile(r"[0-9]{1,400}\.[0-9]{1,400}")
# The three formats of RFC 9110. Other formats of mail dates are not HTTP-dates.
_DATE: Final = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [1-9][0-9]{3} [0-9:]{8} GMT"
    r"|[A-Z][a-z]{5,8}, [0-9]{2}-[A-Z][a-z]{2}-[0-9]{2} [0-9:]{8} GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [1-9][0-9]{3}"
)


def whole_seconds(
    wait: timedelta | float, *, least: int = 1, most: timedelta | float = LONGEST
) -> int:
    """The value of the header: whole seconds, rounded up, never negative."""
    seconds, limit = _seconds(wait), _seconds(most)
    if math.isnan(seconds):
        return least
    return max(least, 0, math.ceil(min(seconds, limit)))


def parse_retry_after(
    text: str,
    *,
    now: datetime,
    date: str | None = None,
    longest: timedelta = LONGEST,
    fractions: bool = False,
) -> timedelta | None:
    """The wait that a server requests; None if it has no valid Retry-After.

    `date` is the Date of the same response, if any: a date in Retry-After is relative to it.
    `fractions` rounds `1.5` up instead of rejecting it.
    """
    text = text.strip(" \t")
    if _SECONDS.fullmatch(text) or (fractions and _FRACTION.fullmatch(text)):
        return min(timedelta(seconds=whole_seconds(float(text), least=0, most=longest)), longest)
    until = _parse_date(text)
    if until is None:
        return None
    since = (None if date is None else _parse_date(date.strip(" \t"))) or now
    return min(max(until - since, timedelta(0)), longest)


def _parse_date(text: str) -> datetime | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        # The third format has no zone; all three are in GMT.
        return parsedate_to_datetime(text).replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError):
        return None


def _seconds(wait: timedelta | float) -> float:
    return wait.total_seconds() if isinstance(wait, timedelta) else wait
