"""Limits: how many jobs of a queue, or of one of its groups, run at once and per time. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from onefold.errors import InvalidInput
from onefold.model.json_text import canonical_json, decode_payload, encode_payload
from onefold.model.timestamps import MICROSECOND, span
from onefold.model.unique import field_at, field_path

MOST: Final = 1_000_000
"""Of a concurrency, and of the jobs that a rate counts."""

_UNITS: Final = {
    "us": MICROSECOND,
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_RATE: Final = re.compile(r"(?P<count>[0-9]{1,7})/(?P<times>[0-9]{1,15})?(?P<unit>us|ms|[smhd])")


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of jobs per period, as a token bucket: a full bucket can be emptied at once.

    A bucket is one number: the time at which it will be full again. (GCRA, the generic cell rate
    algorithm.)
    """

    count: int
    period: timedelta

    @property
    def interval(self) -> int:
        """Microseconds until the next token; rounded up, so that the rate is never exceeded."""
        return -(-(self.period // MICROSECOND) // self.count)

    def left(self, full_at: int, now: int) -> int:
        """How many tokens the bucket has."""
        return max(0, self.count - -(-max(0, full_at - now) // self.interval))

    def spent(self, full_at: int, now: int, tokens: int) -> int:
        """When it will be full again, after this many tokens are taken."""
        return max(full_at, now) + tokens * self.interval

    def wait(self, full_at: int, now: int) -> int:
        """Microseconds until the next token."""
        return max(0, full_at - (self.count - 1) * self.interval - now)

    def believed(self, full_at: int, now: int) -> int:
        """When it will be full again, at the latest: a later time comes from another clock."""
        return min(full_at, now + self.count * self.interval)

    def __str__(self) -> str:
        """As text: 100/m, 10/30s."""
        fitting = [unit for unit, length in _UNITS.items() if not self.period % length]
        times = self.period // _UNITS[fitting[-1]]
        return f"{self.count}/{'' if times == 1 else times}{fitting[-1]}"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Limit:
    """How many jobs run at once (`concurrency`) and are begun in a time (`rate`), everywhere.

        Limit(concurrency=5)
        Limit(rate="100/m")                          # or "10/30s", or (10, timedelta(seconds=30))
        Limit(key="tenant_id", concurrency=2)        # of each group: jobs with the same tenant_id

    A rate is an average with bursts: after a quiet time, all that a period allows may begin at
    once.
    """

    key: str | None
    """The field of the payload (dotted) that has the group of a job without a group_key."""
    concurrency: int | None
    rate: Rate | None

    def __init__(
        self,
        *,
        key: str | None = None,
        concurrency: int | None = None,
        rate: str | tuple[int, timedelta] | Rate | None = None,
    ) -> None:
        """The units of a rate are us, ms, s, m, h and d."""
        if key is None and concurrency is None and rate is None:
            raise InvalidInput("limit", "needs a concurrency, a rate or a key")
        if key is not None:
            field_path(key, "key")
        if concurrency is not None and not _counts(concurrency):
            raise InvalidInput(
                "concurrency", f"must be a whole number from 1 to {MOST}, got {concurrency!r}"
            )
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "concurrency", concurrency)
        object.__setattr__(self, "rate", None if rate is None else parse_rate(rate))

    def group_of(self, payload: Any) -> str | None:
        """The group of a job with this payload; None if it has no such field."""
        if self.key is None:
            return None
        # In its stored form, so that a UUID and its text are the same group.
        stored = decode_payload(encode_payload(payload))
        return group_key(field_at(stored, field_path(self.key, "key")))

    def __repr__(self) -> str:
        """As code."""
        parts = {
            "key": self.key,
            "concurrency": self.concurrency,
            "rate": None if self.rate is None else str(self.rate),
        }
        given = ", ".join(f"{name}={value!r}" for name, value in parts.items() if value is not None)
        return f"Limit({given})"


def group_key(value: Any) -> str | None:
    """The group for a value of a payload: text unchanged, other values as JSON."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else canonical_json(value).decode()


def parse_rate(rate: object, field: str = "rate") -> Rate:
    """A rate from `100/m`, `10/30s`, or a count and a timedelta; errors name the field."""
    count: object
    period: object
    match rate:
        case Rate():
            return rate
        case str():
            count, period = _parsed(rate, field)
        case (count, period):  # pyright: ignore[reportUnknownVariableType]
            pass
        case _:
            raise InvalidInput(
                field, f'must be like "100/m", or a count and a timedelta, got {rate!r}'
            )
    if not isinstance(count, int) or not _counts(count):
        raise InvalidInput(field, f"must allow 1 to {MOST} jobs in its period, got {rate!r}")
    if not isinstance(period, timedelta):
        raise InvalidInput(field, f"needs a timedelta as its period, got {rate!r}")
    if span(period, field) < count:
        raise InvalidInput(field, f"must allow no more than a job a microsecond, got {rate!r}")
    return Rate(count, period)


def stored_rate(count: int | None, period: int | None) -> Rate | None:
    """A rate as it was stored: its count, and its period in microseconds."""
    return None if count is None or period is None else Rate(count, period * MICROSECOND)


def _parsed(text: str, field: str) -> tuple[int, timedelta]:
    found = _RATE.fullmatch(text)
    if found is None:
        raise InvalidInput(field, f'must be like "100/m" or "10/30s", got {text!r}')
    try:
        return int(found["count"]), int(found["times"] or 1) * _UNITS[found["unit"]]
    except OverflowError as error:
        raise InvalidInput(field, f"has a period that is too long, got {text!r}") from error


def _counts(value: object) -> bool:
    return type(value) is int and 1 <= value <= MOST
