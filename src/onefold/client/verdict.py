"""What becomes of a pushed job: as an answer to the push, or as a word to the server. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.errors import Busy, OutcomeUnknown
from onefold.model.failure import printable
from onefold.model.outcome import Bury, Cancel, Defer, Retry
from onefold.model.retry import parse_retry_after, whole_seconds
from onefold.web.webhooks import processing

if TYPE_CHECKING:
    from datetime import datetime

    from onefold.client.pushed import PushedJob
    from onefold.web.http import HttpResponse

REASON_LENGTH: Final = 500
ACCEPTED: Final = processing.told(202)
_LEAST_REFUSAL: Final = 300


class Done(msgspec.Struct, frozen=True):
    """It was done, now or before."""

    result: Any = None


class Failed(msgspec.Struct, frozen=True):
    """It failed, and may be tried again."""

    reason: str
    after: timedelta | None = None


Verdict: TypeAlias = Done | Failed | Defer | Bury | Cancel


class Word(msgspec.Struct, frozen=True):
    """A call of a client's."""

    call: str
    options: dict[str, Any]


def verdict_of(returned: object) -> Verdict:
    """What a handler means by what it returned, or raised."""
    match returned:
        case Retry(after):
            return Failed("the handler asks for another attempt", after)
        case Defer() | Bury() | Cancel():
            return returned
        case _:
            return Done(returned)


def of_error(error: BaseException) -> Verdict:
    """What an exception means: a failed attempt, an unknown outcome, or not now."""
    if isinstance(error, Busy):
        return Defer(error.retry_after)
    if isinstance(error, OutcomeUnknown):
        return Failed("unknown") if error.verifiable else Bury("unknown")
    return Failed(printable(f"{type(error).__qualname__}: {error}", REASON_LENGTH))


def final(said: Verdict | None, answer: HttpResponse, now: datetime) -> Verdict:
    """The last word: the handler's, unless it was not run, or what it did was not committed."""
    is_kept = answer.status < _LEAST_REFUSAL
    if said is not None and (is_kept or not isinstance(said, Done)):
        return said
    if is_kept:
        return Done()
    headers = {name.lower(): value for name, value in answer.headers}
    wait = parse_retry_after(headers.get("retry-after", ""), now=now)
    if wait is not None:
        # An earlier delivery is at work here, or the database is away: no attempt is burned.
        return Defer(wait)
    return Failed(f"the receiver answered {answer.status}")


def answer_to(verdict: Verdict) -> HttpResponse:
    """The answer that means the same to a server whose queue is in standard mode."""
    match verdict:
        case Done() | Cancel():
            return processing.DONE
        case Defer(after):
            wait = ("Retry-After", str(whole_seconds(after)))
            return processing.told(503, "Not now. Send it again later.", wait)
        case Failed(_, after):
            more = () if after is None else (("Retry-After", str(whole_seconds(after))),)
            return processing.told(500, "The job failed. Send it again later.", *more)
        case Bury():
            return processing.told(500, "The job will never work.")


def word_of(verdict: Verdict, job: PushedJob) -> Word:
    """The call that means the same."""
    match verdict:
        case Done(result):
            return Word("acknowledge", {"fence": job.fence, "result": result})
        case Defer(after):
            return Word("defer_job", {"fence": job.fence, "after": after})
        case Bury(reason):
            said = {"retryable": False, "reason": printable(reason, REASON_LENGTH)}
            return Word("nack", {"fence": job.fence, **said})
        case Cancel(reason):
            return Word("cancel", {"reason": printable(reason, REASON_LENGTH)})
        case Failed(reason):
            return Word("nack", {"fence": job.fence, "retryable": True, "reason": reason})
