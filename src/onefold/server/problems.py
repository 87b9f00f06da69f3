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
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    Gone,
    InvalidInput,
    JobNotFound,
    KeyReused,
    LeaseLost,
    OnefoldError,
    OutcomeUnknown,
    QueueNotEmpty,
    ScheduleNotFound,
    StepFailed,
    UsageError,
    WrongState,
)
from onefold.model.wire import BadBody, camel
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
    from collections.abc import Callable

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


class UnknownQueue(OnefoldError):
    """The caller has no such queue."""

    status = 404

    def __init__(self, name: str) -> None:
        """`name` is the requested name."""
        super().__init__(f"There is no queue {name!r}.", queue=name)

    queue: str


def not_found(path: str) -> Refused:
    """No route has this path."""
    return Refused(make(NOT_FOUND, f"There is nothing at {path!r}. See /v1/docs."))


def method_not_allowed(method: str, allowed: str) -> Refused:
    """The path has other methods."""
    return Refused(make(METHOD_NOT_ALLOWED, f"{method} is not possible here; {allowed} is."))


def too_large(limit: int) -> Refused:
    """The body is over the limit."""
    detail = f"The body has more than {limit} bytes. Nothing was stored. Send less at once."
    return Refused(make(TOO_LARGE, detail, extra={"limit": limit}))


def unsupported_media_type(given: str | None) -> Refused:
    """The body is declared as something else than JSON."""
    said = "without a Content-Type" if given is None else f"as {given[:100]!r}"
    return Refused(
        make(UNSUPPORTED_MEDIA, f"The body came {said}; this route takes application/json.")
    )


def arrived_too_slowly() -> Refused:
    """The body did not arrive in time."""
    return Refused(
        make(TIMED_OUT, "The body did not arrive in time. Nothing was stored. Send it again.")
    )


def took_too_long() -> Refused:
    """The response was not ready in time."""
    return Refused(
        make(
            TOOK_TOO_LONG,
            "The request took too long, and it is not known whether it was carried out. Send it"
            " again with the same idempotency key.",
            retry_after=1,
        )
    )


def problem_of(error: BaseException, *, url: str, keyed: bool = False) -> Problem:
    """The problem of an error, for the client.

    `url` is the URL of this server for the client, and `keyed` whether it sent an API key.
    """
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, UnknownQueue):
        return _no_queue(error, url, keyed=keyed)
    for kind, tell in _TELLERS:
        if isinstance(error, kind):
            return tell(error)
    return make(
        INTERNAL,
        "Something went wrong here. It is in the server's log under the request id.",
    )


def _input(error: Any) -> Problem:
    place = error.field if isinstance(error, BadBody) else camel(error.field)
    extra: dict[str, Any] = {"field": place}
    if error.item is not None:
        extra["item"] = error.item
    kind = MALFORMED if isinstance(error, BadBody) and place == "$" else INVALID
    where = (
        "The body" if place == "$" else f"{place} (item {error.item})" if "item" in extra else place
    )
    return make(kind, f"{where} {error.reason}. Nothing was stored.", extra=extra)


def _plainly(kind: ProblemKind) -> Callable[[Any], Problem]:
    return lambda error: make(kind, str(error), extra=_evidence(error))


def _evidence(error: OnefoldError) -> dict[str, Any]:
    """The fields of an error that are plain values."""
    return {
        camel(name): value
        for name, value in error.evidence.items()
        if isinstance(value, str | int | float | bool) and name not in {"status", "problem"}
    }


def _busy(error: Any) -> Problem:
    return make(BUSY, str(error), retry_after=error.retry_after, extra=_evidence(error))


def _not_empty(error: Any) -> Problem:
    return make(
        QUEUE_NOT_EMPTY,
        f"There are jobs in the queue {error.name!r}, queued or running. Nothing was removed. Let"
        " them end, or send the request with ?force=true: they are removed with it then.",
        extra={"queue": error.name},
    )


def _no_queue(error: UnknownQueue, url: str, *, keyed: bool) -> Problem:
    """The problem with the command that creates the queue."""
    where = shlex.quote(f"{url}/v1/queues/{quote(error.queue, safe='')}")
    key = ' -H "Authorization: Bearer $ONEFOLD_API_KEY"' if keyed else ""
    return make(
        QUEUE_NOT_FOUND,
        f"{error} Nothing was stored. Make the queue with: curl -X PUT {where}{key}",
        extra={"queue": error.queue},
    )


def _usage(error: Any) -> Problem:
    return make(INVALID, str(error))


def _unavailable(error: Any) -> Problem:
    del error
    return make(
        UNAVAILABLE,
        "The database cannot be reached or is busy, and it is not known whether the request was"
        " carried out. Send it again with the same idempotency key.",
        retry_after=1,
    )


_TELLERS: Final[tuple[tuple[type[BaseException], Callable[[Any], Problem]], ...]] = (
    (InvalidInput, _input),
    (JobNotFound, _plainly(JOB_NOT_FOUND)),
    (ScheduleNotFound, _plainly(SCHEDULE_NOT_FOUND)),
    (AlreadyEnqueued, _plainly(ALREADY_ENQUEUED)),
    (QueueNotEmpty, _not_empty),
    (KeyReused, _plainly(KEY_REUSED)),
    (Busy, _busy),
    (OutcomeUnknown, _plainly(OUTCOME_UNKNOWN)),
    (LeaseLost, _plainly(LEASE_LOST)),
    (StepFailed, _plainly(STEP_FAILED)),
    (WrongState, _plainly(WRONG_STATE)),
    (Gone, _plainly(GONE)),
    (DatabaseBusy, _unavailable),
    (DatabaseUnavailable, _unavailable),
    (DatabaseError, _unavailable),
    (UsageError, _usage),
)


def document(problem: Problem, *, instance: str, request_id: str) -> bytes:
    """The problem as JSON, with `error` for SimpleQ's SDK."""
    members: dict[str, Any] = {
        **problem.extra,
        "type": problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": instance,
        "code": problem.code,
        "requestId": request_id,
        "error": _error_member(problem),
    }
    return msgspec.json.encode(members)


def _error_member(problem: Problem) -> object:
    if problem.status != 400:  # noqa: PLR2004 - a status of HTTP
        return problem.detail
    field = problem.extra.get("field")
    if field is None or field == "$":
        return {"formErrors": [problem.detail], "fieldErrors": {}}
    return {"formErrors": [], "fieldErrors": {str(field): [problem.detail]}}
