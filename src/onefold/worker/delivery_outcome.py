"""What a handler's end means for its delivery. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import Busy, InvalidInput, JobTimeout, OutcomeUnknown
from onefold.model.checks import REASON_BYTES
from onefold.model.claim import encode_result
from onefold.model.delivery import encode_error
from onefold.model.lifecycle import Event
from onefold.model.outcome import Bury, Cancel, Defer, Outcome, Retry
from onefold.model.timestamps import span
from onefold.operations.deliveries import Finish, is_plain
from onefold.operations.endings import Ending

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.model.delivery import Delivery
    from onefold.model.job import Job
    from onefold.worker.handlers import BoundHandler


class DeliveryOutcome(msgspec.Struct, frozen=True):
    """How a delivery ends."""

    event: Event
    result: str | None = None
    after: int | None = None
    reason: str | None = None
    error: str | None = None
    error_type: str | None = None

    def finish(self, delivery: Delivery, job: Job) -> Finish:
        """As a completion."""
        return Finish(delivery, self.result, plain=is_plain(job.options_text))

    def ending(self, delivery: Delivery) -> Ending:
        """As any other word."""
        return Ending(delivery, self.event, self.after, self.reason, self.error)


FINISHED: Final = DeliveryOutcome(Event.FINISH)
HANDED_BACK: Final = DeliveryOutcome(Event.HAND_BACK)


class Parked:
    """What a handler returns that leaves its delivery running, for somebody else to end."""


PARKED: Final = Parked()


def on_own_word(word: DeliveryOutcome | Parked) -> DeliveryOutcome | None:
    """A handler of our own has said what is to be reported; None for nothing at all."""
    return None if isinstance(word, Parked) else word


def on_value(declared: BoundHandler, job: Job, value: Any) -> DeliveryOutcome:
    """The handler has returned."""
    wanted = job.options.result if job.options_text is not None else None
    if not (declared.stores_result if wanted is None else wanted):
        return FINISHED
    try:
        return DeliveryOutcome(Event.FINISH, encode_result(declared.to_json(value)))
    except InvalidInput as error:
        # Not a failure to be tried again: the work is done, and would be done twice.
        return _failed(Event.BURY, error, reason="the result cannot be stored")


def on_error(error: BaseException) -> DeliveryOutcome:
    """The handler has raised."""
    if isinstance(error, Outcome):
        return on_outcome(error)
    if isinstance(error, Busy):
        return _failed(Event.DEFER, error, after=error.retry_after)
    if isinstance(error, OutcomeUnknown):
        event = Event.FAIL if error.verifiable else Event.BURY
        return _failed(event, error, reason="unknown")
    return _failed(Event.FAIL, error)


def on_outcome(outcome: Outcome) -> DeliveryOutcome:
    """The handler has said what is to become of the job; the cause is what it says it of."""
    cause = outcome.__cause__
    match outcome:
        case Retry(after):
            return _failed(Event.FAIL, cause or outcome, after=after)
        case Defer(after):
            return _failed(Event.DEFER, cause, after=after)
        case Bury(reason):
            return _failed(Event.BURY, cause or outcome, reason=_bounded(reason))
        case Cancel(reason):
            return _failed(Event.CANCEL, cause, reason=_bounded(reason))
        case _:
            return _failed(Event.FAIL, outcome)


def on_timeout(timeout: timedelta) -> DeliveryOutcome:
    """The handler has taken longer than it may."""
    return _failed(Event.FAIL, JobTimeout(timeout))


def on_death(error: Exception) -> DeliveryOutcome:
    """The process that ran the handler is gone."""
    return _failed(Event.FAIL, error)


def on_bad_payload(error: Exception) -> DeliveryOutcome:
    """The payload does not fit the handler; it may fit that of a newer or older worker."""
    return _failed(Event.FAIL, error, reason="payload")


def _failed(
    event: Event,
    error: BaseException | None,
    *,
    after: timedelta | None = None,
    reason: str | None = None,
) -> DeliveryOutcome:
    kind = None if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
    return DeliveryOutcome(
        event,
        after=None if after is None else span(after, "after"),
        reason=reason,
        error=encode_error(error),
        error_type=kind,
    )


def _bounded(reason: object) -> str:
    """A reason that can be stored, whatever the handler gave."""
    text = str(reason).replace("\x00", "\\x00").encode("utf-8", "backslashreplace")
    return text[:REASON_BYTES].decode("utf-8", "ignore")
