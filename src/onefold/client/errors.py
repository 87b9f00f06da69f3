"""What goes wrong between a client and its server, and is no error of the calls themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta


class Unreachable(OnefoldError):
    """No answer came, so nobody knows whether the request was carried out.

    Ask again with the same key: an `enqueue` with an `idempotency_key` of your own may be repeated
    whole, another process included.
    """

    status = 503
    url: str
    reason: str
    tries: int

    def __init__(self, url: str, reason: str, *, tries: int = 1) -> None:
        """`reason` is what the connection said; `tries` counts the requests that were sent."""
        times = "once" if tries == 1 else f"{tries} times"
        super().__init__(
            f"There is no answer from {url}: {reason} (tried {times}). The request may have been"
            " carried out all the same; repeat it with the same idempotency key to find out.",
            url=url,
            reason=reason,
            tries=tries,
        )


class ServerError(OnefoldError):
    """The server refused, or could not do it; `problem` is the whole of what it said."""

    answered: int
    """The status of the answer."""
    code: str
    """The problem's stable name; empty where the answer is not one of Onefold's."""
    detail: str
    retry_after: timedelta | None
    request_id: str | None
    """By which the server's log knows it."""
    problem: Mapping[str, Any]

    def __init__(
        self,
        answered: int,
        detail: str,
        *,
        code: str = "",
        retry_after: timedelta | None = None,
        request_id: str | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        """`detail` is the server's own sentence."""
        known = "" if request_id is None else f" (request {request_id})"
        super().__init__(
            f"The server answered {answered}: {detail}{known}",
            answered=answered,
            code=code,
            detail=detail,
            retry_after=retry_after,
            request_id=request_id,
            problem={} if problem is None else problem,
        )


class NotAuthorized(ServerError):
    """The API key is missing, not valid (any more), or lacks a scope."""

    status = 403


class QueueNotFound(ServerError):
    """The server has no queue of that name for this tenant. `save_queue` makes one."""

    status = 404


class RateLimited(ServerError):
    """The API key has no requests left for now, and the patience of the client was over."""

    status = 429
