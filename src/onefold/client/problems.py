"""A problem document, read: the error that the same call has in-process, or a `ServerError`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from onefold.client.errors import NotAuthorized, QueueNotFound, RateLimited, ServerError
from onefold.client.wire import snake
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
    ScheduleNotFound,
    StepFailed,
    WrongState,
)
from onefold.model.retry import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onefold.client.flow import Reply

EXCERPT: Final = 200
_ITEM: Final = re.compile(r"items\[([0-9]{1,6})\]")

ERRORS: Final[Mapping[str, type[OnefoldError]]] = {
    "already_enqueued": AlreadyEnqueued,
    "gone": Gone,
    "job_not_found": JobNotFound,
    "key_reused": KeyReused,
    "lease_lost": LeaseLost,
    "outcome_unknown": OutcomeUnknown,
    "schedule_not_found": ScheduleNotFound,
    "step_failed": StepFailed,
    "wrong_state": WrongState,
}
"""Problems whose evidence travels with them, and the errors that they were."""

INVALID: Final = frozenset({"invalid_input", "malformed_body"})

FIELDS: Final[Mapping[type[OnefoldError], tuple[str, ...]]] = {
    AlreadyEnqueued: ("key", "holder_id", "state", "item"),
    Gone: ("job_id",),
    JobNotFound: ("job_id",),
    KeyReused: ("key", "holder_id", "item"),
    LeaseLost: ("subject", "fence"),
    OutcomeUnknown: ("key", "since", "verifiable"),
    ScheduleNotFound: ("name",),
    StepFailed: ("step", "error_type", "reason"),
    WrongState: ("job_id", "state", "wanted"),
}
"""What code that catches them may ask for; None where the server did not tell."""


def problem_of(reply: Reply) -> Mapping[str, Any]:
    """The problem document of an answer; empty where it has none."""
    if "json" not in reply.headers.get("content-type", ""):
        return {}
    try:
        said: object = reply.json()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def code_of(reply: Reply) -> str:
    """The stable name of its problem; empty where it has none."""
    code = problem_of(reply).get("code")
    return code if isinstance(code, str) else ""


def error_of(reply: Reply) -> OnefoldError:
    """The error that an answer is."""
    problem, code = problem_of(reply), code_of(reply)
    if code in INVALID:
        return _invalid(problem, _detail(reply, problem))
    if code == "busy":
        return _busy(reply, problem)
    kind = ERRORS.get(code)
    if kind is not None:
        return _rebuilt(kind, _detail(reply, problem), problem)
    return _server_error(reply, problem, code)


def retry_after_of(reply: Reply) -> timedelta | None:
    """What the server asks to wait, if it does."""
    said = reply.headers.get("retry-after")
    if said is None:
        return None
    return parse_retry_after(said, now=datetime.now(UTC), date=reply.headers.get("date"))


def _rebuilt(kind: type[OnefoldError], detail: str, problem: Mapping[str, Any]) -> OnefoldError:
    """The error as the server had it: its own sentence, and the evidence that came along."""
    found = {snake(name): value for name, value in problem.items()}
    evidence = {field: found.get(field) for field in FIELDS[kind]}
    if isinstance(since := evidence.get("since"), str):
        evidence["since"] = _moment(since)
    error = kind.__new__(kind)
    OnefoldError.__init__(error, detail, **evidence)
    return error


def _moment(text: str) -> datetime | None:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None


def _invalid(problem: Mapping[str, Any], detail: str) -> OnefoldError:
    """As the same call in-process names the field: in snake_case, without the path to it."""
    place, item = str(problem.get("field", "request")), problem.get("item")
    if found := _ITEM.match(place):
        item = int(found[1])
    error = InvalidInput.__new__(InvalidInput)
    OnefoldError.__init__(
        error,
        detail,
        field=snake(place.rpartition(".")[2]),
        reason=detail,
        item=item if isinstance(item, int) else None,
    )
    return error


def _busy(reply: Reply, problem: Mapping[str, Any]) -> OnefoldError:
    wait = retry_after_of(reply) or timedelta(seconds=1)
    return Busy(key=str(problem.get("key", "")), retry_after=wait)


def _server_error(reply: Reply, problem: Mapping[str, Any], code: str) -> ServerError:
    kind: Callable[..., ServerError] = _KINDS.get(code) or _BY_STATUS.get(reply.status, ServerError)
    request_id = problem.get("requestId")
    return kind(
        reply.status,
        _detail(reply, problem),
        code=code,
        retry_after=retry_after_of(reply),
        request_id=request_id if isinstance(request_id, str) else None,
        problem=problem,
    )


_KINDS: Final[Mapping[str, type[ServerError]]] = {"queue_not_found": QueueNotFound}
_BY_STATUS: Final[Mapping[int, type[ServerError]]] = {
    401: NotAuthorized,
    403: NotAuthorized,
    429: RateLimited,
}


def _detail(reply: Reply, problem: Mapping[str, Any]) -> str:
    """What it says; of an answer that is no problem (a proxy's page, say), how it begins."""
    for member in ("detail", "title", "error"):
        said = problem.get(member)
        if isinstance(said, str) and said:
            return said
    start = " ".join(reply.body[:EXCERPT].decode("utf-8", "replace").split())
    return start or "nothing else was said"
