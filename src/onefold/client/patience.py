"""How long a client tries: pure; the dice and the clock are arguments."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.timestamps import span

TRIES: Final = range(1, 1001)
_MOMENT: Final = timedelta(milliseconds=1)


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """When a client tries again, and when it gives up."""

    tries: int = 8
    """How many times a request is sent at most."""
    first: timedelta = timedelta(milliseconds=250)
    """The pause after the first try; it doubles with every other."""
    longest: timedelta = timedelta(seconds=8)
    """No pause of our own is longer. What the server asks for may be."""
    timeout: timedelta = timedelta(seconds=30)
    """For one try, from connecting to the last byte of the answer."""
    deadline: timedelta = timedelta(minutes=2)
    """For all of them: a pause that would go beyond it is not begun."""

    def __post_init__(self) -> None:
        """Refuse what could not be meant, by the name of the field."""
        if type(self.tries) is not int or self.tries not in TRIES:
            raise InvalidInput(
                "tries", f"must be a whole number from 1 to {TRIES[-1]}, got {self.tries!r}"
            )
        for field in ("first", "longest", "timeout", "deadline"):
            span(getattr(self, field), field, least=_MOMENT)
        if self.longest < self.first:
            raise ConflictingOptions("longest", f"must not be shorter than first: {self.longest}")

    def pause(self, tried: int, dice: float) -> float:
        """Seconds after so many tries: 50 to 100 % of what doubling comes to."""
        # As numbers, and bounded: as a timedelta, the product could be out of range.
        doubled = self.first.total_seconds() * 2.0 ** min(tried - 1, 64)
        return min(doubled, self.longest.total_seconds()) * (0.5 + dice / 2)
