"""Words about deliveries that ended otherwise than well: checked, and said in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.calls.procedure import Procedure, Transaction
from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.checks import REASON_BYTES, text
from onefold.model.delivery import Delivery, Ended, deliveries, encode_error
from onefold.model.failure import printable
from onefold.model.lifecycle import Event
from onefold.model.timestamps import span
from onefold.operations import endings
from onefold.operations.endings import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from onefold.model.job import Job

WORDS: Final = frozenset({Event.FAIL, Event.DEFER, Event.BURY, Event.CANCEL, Event.HAND_BACK})


def end_alike(
    event: Event,
    jobs: Sequence[Job | Delivery],
    *,
    after: timedelta | None = None,
    reason: str | None = None,
    error: object = None,
) -> Procedure[list[Ended]]:
    """The same word about all of them."""
    # Only a retry has a backoff to fall back on.
    delay = None if after is None and event is not Event.DEFER else span(after, "after")
    why = None if reason is None else text(reason, "reason", longest=REASON_BYTES)
    failure = encode_error(error)
    return _say([Ending(delivery, event, delay, why, failure) for delivery in deliveries(jobs)])


def end_mixed(words: Sequence[Ending]) -> Procedure[list[Ended]]:
    """A word about each of them."""
    listed = checks.listed(words, "endings", "endings")
    said: dict[Delivery, Ending] = {}
    for item, word in enumerate(listed):
        if not isinstance(word, Ending):
            raise InvalidInput("endings", f"must hold endings, got {word!r}", item=item)
        if word.event not in WORDS:
            reason = f"cannot end a delivery by {word.event!r}: a finish is a call of its own"
            raise InvalidInput("endings", reason, item=item)
        if word.event is Event.DEFER and word.after is None:
            raise InvalidInput("after", "must say when a deferred job comes back", item=item)
        if said.setdefault(word.delivery, word) != word:
            raise InvalidInput("endings", "says two things about one delivery", item=item)
    named = deliveries([word.delivery for word in listed])
    return _say(
        [
            Ending(delivery, word.event, word.after, _reason(word.reason), word.error)
            for delivery, word in zip(named, listed, strict=True)
        ]
    )


def _reason(reason: str | None) -> str | None:
    """A handler's own words: they must not keep its delivery from ending."""
    return None if reason is None else printable(reason, REASON_BYTES)


def _say(words: Sequence[Ending]) -> Procedure[list[Ended]]:
    if not words:
        return []
    ended: list[Ended] = yield Transaction(lambda sql: endings.end(sql, words))
    return ended
