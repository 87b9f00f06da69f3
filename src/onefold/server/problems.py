"""Problems: the errors that a client of the server receives.

Every problem is RFC 9457 with a stable `code`; the member `error` is for SimpleQ's SDK.
docs/reference/problems.md explains each.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from onefold.errors import (
    AlreadyEnqueued,
    Busy,
    DatabaseError,
    Gone,
    InvalidInput,
    JobNotFound,
    KeyReused,
    LeaseLost,
    OnefoldError,
    OutcomeUnknown,
    QueueNotEmpty,
    QueueNotFound,
    ScheduleNotFound,
    StepFailed,
    UsageError,
    WrongState,
)
from onefold.model.wire import BadBody, camel
from onefold.web.http import HttpResponse
from onefold.web.problems import (
    KEY_REUSED,
    LEASE_LOST,
    OUTCOME_UNKNOWN,
    TOO_LARGE,
    UNAVAILABLE,
    Problem,
    ProblemKind,
    Refused,
    make,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.web.http import Header

MALFORMED: Final = ProblemKind("malformed_body", 400, "Body cannot be read")
INVALID: Final = ProblemKind("invalid_input", 400, "Invalid input")
UNAUTHENTICATED: Final = ProblemKind("unauthenticated", 401, "No valid API key")
FORBIDDEN: Final = ProblemKind("forbidden", 403, "Not allowed")
NOT_FOUND: Final = ProblemKind("not_found", 404, "Nothing there")
QUEUE_NOT_FOUND: Final = ProblemKind("queue_not_found", 404, "No such queue")
JOB_NOT_FOUND: Final = ProblemKind("job_not_found", 404, "No such job")
SCHEDULE_NOT_FOUND: Final = ProblemKind("schedule_not_found", 404, "No such schedule")
METHOD_NOT_ALLOWED: Final = ProblemKind("method_not_allowed", 405, "Method not allowed")
TIMED_OUT: Final = ProblemKind("timed_out", 408, "Request took too long to arrive")
ALREADY_ENQUEUED: Final = ProblemKind("already_enqueued", 409, "Already enqueued")
QUEUE_NOT_EMPTY: Final = ProblemKind("queue_not_empty", 409, "Queue has jobs")
WRONG_STATE: Final = ProblemKind("wrong_state", 409, "Not possible in this state")
BUSY: Final = ProblemKind("busy", 409, "Held by another")
STEP_FAILED: Final = ProblemKind("step_failed", 409, "Step failed before")
GONE: Final = ProblemKind("gone", 410, "No longer kept")
UNSUPPORTED_MEDIA: Final = ProblemKind("unsupported_media_type", 415, "Unsupported media type")
RATE_LIMITED: Final = ProblemKind("rate_limited", 429, "Too many requests")
INTERNAL: Final = ProblemKind("internal", 500, "Internal error")
NOT_INSTALLED: Final = ProblemKind("not_installed", 501, "Not installed")
TOOK_TOO_LONG: Final = ProblemKind("took_too_long", 503, "Took too long")

KINDS: Final[tuple[ProblemKind, ...]] = (
    MALFORMED, INVALID, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, QUEUE_NOT_FOUND, JOB_NOT_FOUND,
    SCHEDULE_NOT_FOUND, METHOD_NOT_ALLOWED, TIMED_OUT, ALREADY_ENQUEUED, QUEUE_NOT_EMPTY,
    WRONG_STATE, BUSY, STEP_FAILED, GONE, UNSUPPORTED_MEDIA, RATE_LIMITED, INTERNAL, NOT_INSTALLED,
    TOOK_TOO_LONG,
)  # fmt: skip
"""The problems of the server, beside those of `onefold.web`."""

AWAY: Final = "The database cannot be reached or is busy"
"""What anyone may know of its errors, which name its address, its user and its file."""


def refused(
    kind: ProblemKind,
    detail: str,
    *,
    retry_after: timedelta | float | None = None,
    extra: dict[str, Any] | None = None,
) -> Refused:
    """The error that answers a request with a problem of this kind."""
    return Refused(make(kind, detail, retry_after=retry_after, extra=extra))


def too_large(limit: int) -> Refused:
    """The body is over the limit."""
    detail = f"The body has more than {limit} bytes. Nothing was stored. Send less at once."
    return refused(TOO_LARGE, detail, extra={"limit": limit})


def arrived_too_slowly() -> Refused:
    """The body did not arrive in time."""
    detail = "The body did not arrive in time. Nothing was stored. Send it again."
    return refused(TIMED_OUT, detail)


def took_too_long(*, reads: bool) -> Refused:
    """The response was not ready in time; `reads` as in `problem_of`."""
    return refused(TOOK_TOO_LONG, f"The request took too long{_again(reads=reads)}", retry_after=1)


def _again(*, reads: bool) -> str:
    if reads:
        return ". Send it again."
    return (
        ", and it is not known whether it was carried out. Send it again with the same idempotency"
        " key."
    )


KIND_OF: Final[dict[type[OnefoldError], ProblemKind]] = {
    JobNotFound: JOB_NOT_FOUND,
    ScheduleNotFound: SCHEDULE_NOT_FOUND,
    AlreadyEnqueued: ALREADY_ENQUEUED,
    KeyReused: KEY_REUSED,
    Busy: BUSY,
    OutcomeUnknown: OUTCOME_UNKNOWN,
    LeaseLost: LEASE_LOST,
    StepFailed: STEP_FAILED,
    WrongState: WRONG_STATE,
    Gone: GONE,
    QueueNotEmpty: QUEUE_NOT_EMPTY,
    UsageError: INVALID,
}
"""Errors whose sentence and plain fields are the problem."""


def problem_of(
    error: BaseException, *, url: str, keyed: bool = False, reads: bool = False
) -> Problem:
    """The problem of an error, for the client.

    `url` is the URL of this server for the client, `keyed` whether it sent an API key, and `reads`
    whether its request changes nothing.
    """
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, QueueNotFound):
        return _queue_not_found(error, url, keyed=keyed)
    if isinstance(error, InvalidInput):
        return _invalid_input(error)
    for kind, problem_kind in KIND_OF.items():
        if isinstance(error, kind):
            wait = error.retry_after if isinstance(error, Busy) else None
            return make(problem_kind, str(error), retry_after=wait, extra=_plain_fields(error))
    if isinstance(error, DatabaseError):
        detail = (
            f"The request failed: the database cannot be reached or is busy{_again(reads=reads)}"
        )
        return make(UNAVAILABLE, detail, retry_after=1)
    detail = "An error in the server. The server's log has it under the request id."
    return make(INTERNAL, detail)


def _invalid_input(error: InvalidInput) -> Problem:
    place = error.field if isinstance(error, BadBody) else camel(error.field)
    extra: dict[str, Any] = {"field": place}
    where = "The body" if place == "$" else place
    if error.item is not None:
        extra["item"] = error.item
        where = f"{where} (item {error.item})"
    kind = MALFORMED if isinstance(error, BadBody) and place == "$" else INVALID
    return make(kind, f"{where} {error.reason}. Nothing was stored.", extra=extra)


def _plain_fields(error: OnefoldError) -> dict[str, Any]:
    return {
        camel(name): value
        for name, value in error.evidence.items()
        if isinstance(value, str | int | float | bool) and name != "status"
    }


def _queue_not_found(error: QueueNotFound, url: str, *, keyed: bool) -> Problem:
    """The problem with the command that creates the queue."""
    where = shlex.quote(f"{url}/v1/queues/{quote(error.queue, safe='')}")
    key = ' -H "Authorization: Bearer $ONEFOLD_API_KEY"' if keyed else ""
    return make(
        QUEUE_NOT_FOUND,
        f"{error} Nothing was stored. Make the queue with: curl -X PUT {where}{key}",
        extra={"queue": error.queue},
    )


def problem_response(
    problem: Problem, *, instance: str, request_id: str, more: tuple[Header, ...] = ()
) -> HttpResponse:
    """The problem as a response. Its member `error` is for SimpleQ's SDK."""
    headers = [("content-type", "application/problem+json"), ("cache-control", "no-store"), *more]
    if problem.retry_after is not None:
        headers.append(("retry-after", str(problem.retry_after)))
    members = problem.members(instance) | {"requestId": request_id, "error": _error_of(problem)}
    return HttpResponse(problem.status, tuple(headers), msgspec.json.encode(members))


def _error_of(problem: Problem) -> object:
    if problem.status != 400:  # noqa: PLR2004 - a status of HTTP
        return problem.detail
    field = problem.extra.get("field")
    if field is None or field == "$":
        return {"formErrors": [problem.detail], "fieldErrors": {}}
    return {"formErrors": [], "fieldErrors": {str(field): [problem.detail]}}
