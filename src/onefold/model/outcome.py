"""How a delivery may end, as values: what a handler returns or raises.

They are exceptions too, so that code deep inside a handler can end the run from where it stands.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from onefold.model.moment import span
from onefold.model.retry_after import parse_retry_after

PRESSED: Final = frozenset({429, 503, 529})
"""The statuses of a server that wants to be left alone for a while."""

UNTOLD: Final = timedelta(seconds=60)
"""How long that is where it does not say."""


class Outcome(Exception):
    """The common parent of the four, to be caught as one."""


class Retry(Outcome):
    """The attempt failed; try again after `after`, or by the job's backoff."""

    __match_args__ = ("after",)

    def __init__(self, after: timedelta | None = None) -> None:
        """`after` replaces the backoff; it may not be negative."""
        if after is not None:
            span(after, "after")
        super().__init__(after)
        self.after = after


class Defer(Outcome):
    """Not now: come back after `after`; no attempt is burned."""

    __match_args__ = ("after",)

    def __init__(self, after: timedelta) -> None:
        """`after` may not be negative."""
        span(after, "after")
        super().__init__(after)
        self.after = after

    @classmethod
    def from_response(cls, response: Any, *, now: datetime | None = None) -> Defer | None:
        """What a downstream server asks for by 429, 503 or 529; None for any other status.

        After its Retry-After, in seconds or as a date, and within a day; after 60 seconds where
        there is none, or none that can be understood. Takes the response of any HTTP library: what
        has a status and headers.
        """
        status = getattr(response, "status_code", None) or getattr(response, "status", None)
        if status not in PRESSED:
            return None
        wanted = _retry_after(response.headers, datetime.now(UTC) if now is None else now)
        return cls(UNTOLD if wanted is None else wanted)


class Bury(Outcome):
    """This will never work: to the dead letters, whatever attempts remain."""

    __match_args__ = ("reason",)

    def __init__(self, reason: str) -> None:
        """`reason` is for the person who looks at the dead letter."""
        super().__init__(reason)
        self.reason = reason


class Cancel(Outcome):
    """Not wanted any more: stop, without failure."""

    __match_args__ = ("reason",)

    def __init__(self, reason: str) -> None:
        """`reason` is for the person who asks why."""
        super().__init__(reason)
        self.reason = reason


def _retry_after(headers: Any, now: datetime) -> timedelta | None:
    # Not every library's headers, and no plain dictionary, can be asked whatever the letters' case.
    said = {str(name).lower(): str(value) for name, value in reversed(list(headers.items()))}
    text = said.get("retry-after")
    if text is None:
        return None
    return parse_retry_after(text, now=now, date=said.get("date"), fractions=True)
