"""Problem documents of a server as errors: those of the library, and those that only a client has.

OnefoldError
├── Unreachable          no response arrived
└── ServerError          the server rejected the request or failed
    ├── NotAuthorized    401, 403
    └── RateLimited      429
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from onefold.client.requests import snake
from onefold.errors import (
    AlreadyEnqueued,
    Busy,
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
    WrongState,
)
from onefold.model.retry import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.client.requests import ClientResponse

EXCERPT: Final = 200
_ITEM: Final = re.compile(r"items\[([0-9]{1,6})\]")


class Unreachable(OnefoldError):
    """No response arrived. The server may have executed the request.

    Repeat it with the same key. An `enqueue` with your own `idempotency_key` may be repeated as a
    whole, also from another process.
    """

    status = 503
    url: str
    reason: str
    tries: int

    def __init__(self, url: str, reason: str, *, tries: int = 1) -> None:
        """`reason` is the error of the connection; `tries` counts the requests that were sent."""
        times = "once" if tries == 1 else f"{tries} times"
        super().__init__(
            f"No response from {url}: {reason} (tried {times}). The server may have executed the"
            " request. Repeat it with the same idempotency key to find out.",
            url=url,
            reason=reason,
            tries=tries,
        )


class ServerError(OnefoldError):
    """The server rejected the request or failed; `problem` is the whole problem document."""

    answered: int
    """The status of the response."""
    code: str
    """The stable name of the problem; empty if the response is not from Onefold."""
    detail: str
    retry_after: timedelta | None
    request_id: str | None
    """The id of the request in the server's log."""
    problem: Mapping[str, Any]

    def __init__(
        self,
        answered: int,
        detail: str,
        *,
        problem: Mapping[str, Any] | None = None,
        retry_after: timedelta | None = None,
    ) -> None:
        """`detail` is the server's own sentence."""
        members = problem or {}
        request_id = members.get("requestId")
        suffix = "" if request_id is None else f" (request {request_id})"
        super().__init__(
            f"The server answered {answered}: {detail}{suffix}",
            answered=answered,
            code=str(members.get("code", "")),
            detail=detail,
            retry_after=retry_after,
            request_id=None if request_id is None else str(request_id),
            problem=members,
        )


class NotAuthorized(ServerError):
    """The API key is missing, is not valid, or lacks a scope."""

    status = 403


class RateLimited(ServerError):
    """The rate limit of the API key is used up, and so are the client's tries."""

    status = 429


ERRORS: Final[Mapping[str, tuple[type[OnefoldError], tuple[str, ...]]]] = {
    "already_enqueued": (AlreadyEnqueued, ("key", "holder_id", "state", "item")),
    "gone": (Gone, ("job_id",)),
    "job_not_found": (JobNotFound, ("job_id",)),
    "key_reused": (KeyReused, ("key", "holder_id", "item")),
    "lease_lost": (LeaseLost, ("subject", "fence")),
    "queue_not_empty": (QueueNotEmpty, ("name",)),
    "queue_not_found": (QueueNotFound, ("queue",)),
    "outcome_unknown": (OutcomeUnknown, ("key", "since", "verifiable")),
    "schedule_not_found": (ScheduleNotFound, ("name",)),
    "step_failed": (StepFailed, ("step", "error_type", "reason")),
    "wrong_state": (WrongState, ("job_id", "state", "wanted")),
}
"""Problems that are errors of the library, and their fields; None if the server sent none."""

INVALID: Final = frozenset({"invalid_input", "malformed_body"})
BY_STATUS: Final[Mapping[int, type[ServerError]]] = {
    401: NotAuthorized,
    403: NotAuthorized,
    429: RateLimited,
}


def problem_of(response: ClientResponse) -> Mapping[str, Any]:
    """The problem document of a response; empty if it has none."""
    if "json" not in response.headers.get("content-type", ""):
        return {}
    try:
        problem: object = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", problem) if isinstance(problem, dict) else {}


def code_of(response: ClientResponse) -> str:
    """The stable name of its problem; empty if it has none."""
    code = problem_of(response).get("code")
    return code if isinstance(code, str) else ""


def retry_after_of(response: ClientResponse) -> timedelta | None:
    """Its Retry-After."""
    value = response.headers.get("retry-after")
    if value is None:
        return None
    return parse_retry_after(value, now=datetime.now(UTC), date=response.headers.get("date"))


def error_of(response: ClientResponse) -> OnefoldError:
    """The error that a response stands for."""
    problem = problem_of(response)
    code = str(problem.get("code", ""))
    detail = _detail(response, problem)
    if code in INVALID:
        return _invalid_input(problem, detail)
    if code == "busy":
        wait = retry_after_of(response) or timedelta(seconds=1)
        return Busy(key=str(problem.get("key", "")), retry_after=wait)
    if code in ERRORS:
        kind, fields = ERRORS[code]
        found = {snake(name): value for name, value in problem.items()}
        found["since"] = _time(found.get("since"))
        return _restored(kind, detail, {field: found.get(field) for field in fields})
    error = BY_STATUS.get(response.status)
    return (error or ServerError)(
        response.status, detail, problem=problem, retry_after=retry_after_of(response)
    )


def _restored(kind: type[OnefoldError], detail: str, fields: dict[str, Any]) -> OnefoldError:
    """An error of the library with the server's sentence and its fields."""
    error = kind.__new__(kind)
    OnefoldError.__init__(error, detail, **fields)
    return error


def _time(text: object) -> datetime | None:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None


def _invalid_input(problem: Mapping[str, Any], detail: str) -> OnefoldError:
    """The field has its name in Python: in snake_case, without the path to it."""
    place, item = str(problem.get("field", "request")), problem.get("item")
    if found := _ITEM.match(place):
        item = int(found[1])
    fields = {
        "field": snake(place.rpartition(".")[2]),
        "reason": detail,
        "item": item if isinstance(item, int) else None,
    }
    return _restored(InvalidInput, detail, fields)


def _detail(response: ClientResponse, problem: Mapping[str, Any]) -> str:
    """The sentence of a problem; the first characters of another response, such as a proxy's."""
    for member in ("detail", "title", "error"):
        text = problem.get(member)
        if isinstance(text, str) and text:
            return text
    start = " ".join(response.body[:EXCERPT].decode("utf-8", "replace").split())
    return start or "the response is empty"
