"""How a delivery ends: the outcome for each return value and error of a handler. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import Busy, InvalidInput, JobTimeout, OutcomeUnknown
from onefold.model.checks import REASON_BYTES
from onefold.model.claim import encode_result
from onefold.model.delivery import encode_error
from onefold.model.failure import printable, type_name
from onefold.model.json_text import to_json
from onefold.model.lifecycle import Event
from onefold.model.outcome import Bury, Cancel, Defer, Outcome, Retry
from onefold.model.timestamps import span

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.worker.executor import HeldDelivery


class DeliveryOutcome(msgspec.Struct, frozen=True):
    """How a delivery ends."""

    event: Event
    result: str | None = None
    after: int | None = None
    reason: str | None = None
    error: str | None = None
    error_type: str | None = None


FINISHED: Final = DeliveryOutcome(Event.FINISH)
HANDED_BACK: Final = DeliveryOutcome(Event.HAND_BACK)


class Parked:
    """The return value of a push that leaves its delivery running until an ack arrives."""


PARKED: Final = Parked()


def on_value(held: HeldDelivery, value: Any) -> DeliveryOutcome:
    """The outcome of a handler that returned."""
    wanted = None if held.row.options is None else held.job.store_result
    if not (held.handler.stores_result if wanted is None else wanted):
        return FINISHED
    try:
        return DeliveryOutcome(Event.FINISH, encode_result(to_json(value, "result")))
    except InvalidInput as error:
        # Not retried: the work is done, and a retry would do it twice.
        return _failed(Event.BURY, error, reason="the result cannot be stored")


def on_error(error: BaseException) -> DeliveryOutcome:
    """The outcome of a handler that raised an exception."""
    if isinstance(error, Outcome):
        return _on_outcome(error)
    if isinstance(error, Busy):
        return _failed(Event.DEFER, error, after=error.retry_after)
    if isinstance(error, OutcomeUnknown):
        event = Event.FAIL if error.verifiable else Event.BURY
        return _failed(event, error, reason="unknown")
    return _failed(Event.FAIL, error)


def _on_outcome(outcome: Outcome) -> DeliveryOutcome:
    """The outcome that a handler chose; the error that it was raised from is stored with it."""
    cause = outcome.__cause__
    match outcome:
        case Retry(after):
            return _failed(Event.FAIL, cause or outcome, after=after)
        case Defer(after):
            return _failed(Event.DEFER, cause, after=after)
        case Bury(reason):
            return _failed(
                Event.BURY, cause or outcome, reason=printable(str(reason), REASON_BYTES)
            )
        case Cancel(reason):
            return _failed(Event.CANCEL, cause, reason=printable(str(reason), REASON_BYTES))
        case _:
            return _failed(Event.FAIL, outcome)


def on_timeout(timeout: timedelta) -> DeliveryOutcome:
    """The outcome of a handler that exceeded its timeout."""
    return _failed(Event.FAIL, JobTimeout(timeout))


def on_bad_payload(error: Exception) -> DeliveryOutcome:
    """The payload does not match the handler. Another version of the worker may accept it."""
    return _failed(Event.FAIL, error, reason="payload")


def _failed(
    event: Event,
    error: BaseException | None,
    *,
    after: timedelta | None = None,
    reason: str | None = None,
) -> DeliveryOutcome:
    kind = None if error is None else type_name(error)
    return DeliveryOutcome(
        event,
        after=None if after is None else span(after, "after"),
        reason=reason,
        error=encode_error(error),
        error_type=kind,
    )
