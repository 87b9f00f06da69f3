"""How a delivery may end, as values: what a handler returns or raises.

They are exceptions too, so that code deep inside a handler can end the run from where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.model.moment import span

if TYPE_CHECKING:
    from datetime import timedelta


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
