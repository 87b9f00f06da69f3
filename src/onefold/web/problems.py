"""Problem documents (RFC 9457) for requests that are rejected.

The registry below is the list; docs/reference/problems.md explains each. A problem never contains
a body, a stored response or the key itself.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from onefold.errors import OnefoldError
from onefold.model.retry import whole_seconds
from onefold.web.http import HttpResponse, prefers_html

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.web.http import Header, HttpRequest

_TYPES: Final = "urn:onefold:problem:"


class ProblemKind(msgspec.Struct, frozen=True):
    """One kind of problem: what never changes about it."""

    code: str
    status: int
    title: str
    detail: str = ""
    """What happened and what to do; empty if each occurrence has its own text."""

    @property
    def type(self) -> str:
        """The URI of this kind of problem."""
        return f"{_TYPES}{self.code}"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One occurrence of a problem."""

    type: str
    """The kind of the problem as a URI: `urn:onefold:problem:` and its code."""
    title: str
    """What kind of problem it is, in a few words; the same for every occurrence."""
    status: int
    """The status of the response."""
    detail: str
    """What happened, and what to do about it, for people."""
    code: str
    """The kind of the problem, for programs. A code never changes its meaning."""
    instance: str | None = None
    """None is the path of the request that is answered."""
    retry_after: int | None = None
    """Whole seconds."""
    link: str | None = None
    """The URL of the documentation; sent as Link with rel="describedby"."""
    extra: dict[str, Any] = {}
    """More members, in plain JSON."""

    def described_by(self, link: str | None) -> Problem:
        """The same with a link to the documentation; unchanged for None."""
        return self if link is None else msgspec.structs.replace(self, link=link)

    def answer(self, request: HttpRequest) -> HttpResponse:
        """The problem as a response: JSON, or a small page for a client that prefers HTML."""
        if prefers_html(request):
            return self._answer("text/html; charset=utf-8", self._page())
        body = msgspec.json.encode(self.members(_path(request.path)))
        return self._answer("application/problem+json", body)

    def _answer(self, media_type: str, body: bytes) -> HttpResponse:
        headers: list[Header] = [
            ("Content-Type", media_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Vary", "Accept"),
        ]
        if self.retry_after is not None:
            headers.append(("Retry-After", str(self.retry_after)))
        if self.link is not None:
            headers.append(("Link", f'<{_uri(self.link)}>; rel="describedby"'))
        return HttpResponse(self.status, tuple(headers), body)

    def members(self, instance: str) -> dict[str, Any]:
        """The document; `instance` is the path of the request."""
        return {
            **self.extra,
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance if self.instance is None else self.instance,
            "code": self.code,
        }

    def _page(self) -> bytes:
        title, detail = html.escape(self.title), html.escape(self.detail)
        more = ""
        if self.link is not None:
            more = f'<p><a href="{html.escape(_uri(self.link))}">Read more</a></p>\n'
        return (
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width">\n'
            f"<title>{self.status} {title}</title>\n"
            f"<h1>{title}</h1>\n<p>{detail}</p>\n{more}</html>\n"
        ).encode()


class Refused(OnefoldError):
    """A request is rejected; `problem` is the response."""

    problem: Problem

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail, problem=problem, status=problem.status)


KEY_MISSING: Final = ProblemKind("key_missing", 400, "Idempotency key missing")
KEY_INVALID: Final = ProblemKind("key_invalid", 400, "Idempotency key invalid")
KEY_EXPIRED: Final = ProblemKind(
    "key_expired",
    400,
    "Idempotency key expired",
    "This idempotency key is older than responses are stored, so a retry cannot be distinguished"
    " from a new request. Nothing was done now. Find out the result of the first request, and use"
    " a new key for a new one.",
)
NOT_CONFIGURED: Final = ProblemKind(
    "not_configured",
    400,
    "Idempotency keys not supported here",
    "This operation does not support idempotency keys, so a retry would be carried out again."
    " Nothing was done. Send the request without the key if that is what you want.",
)
NOTHING_SELECTED: Final = ProblemKind(
    "nothing_selected",
    400,
    "Request not identifiable",
    "The body has none of the fields by which this operation tells a retry from another request."
    " Nothing was done.",
)
INCOMPLETE: Final = ProblemKind(
    "incomplete",
    400,
    "Request incomplete",
    "The body of this request ended before it was complete. Nothing was done. Send it again, with"
    " the same idempotency key.",
)
NOT_IDENTIFIED: Final = ProblemKind(
    "not_identified",
    401,
    "Caller not identified",
    "An idempotency key belongs to one caller, and the caller is unknown. Nothing was done. Sign"
    " in, or send the request without the key.",
)
IN_PROGRESS: Final = ProblemKind(
    "in_progress",
    409,
    "Request in progress",
    "The first request with this idempotency key is still running. Send the same request again"
    " later to get its response.",
)
OUTCOME_UNKNOWN: Final = ProblemKind(
    "outcome_unknown",
    409,
    "Outcome unknown",
    "The first request with this idempotency key did not end, and its effects are unknown. It is"
    " not carried out again until they are known. Do not send it under a new key: it may have"
    " happened.",
)
RESPONSE_NOT_KEPT: Final = ProblemKind(
    "response_not_kept",
    409,
    "Already completed",
    "The request with this idempotency key was carried out, and its response was sent once but not"
    " stored. Nothing was done again.",
)
LEASE_LOST: Final = ProblemKind(
    "lease_lost",
    409,
    "Superseded by another attempt",
    "This attempt took too long, and another one with the same idempotency key took its place."
    " Send the same request again to get the response of that attempt.",
)
TOO_LARGE: Final = ProblemKind("too_large", 413, "Request too large")
KEY_REUSED: Final = ProblemKind(
    "key_reused",
    422,
    "Idempotency key reused",
    "This idempotency key was used before with a different request. Nothing was done. Use a new"
    " key for a new request, and send a retry exactly as the first time.",
)
ATTEMPT_FAILED: Final = ProblemKind(
    "attempt_failed",
    500,
    "Attempt failed",
    "The request with this idempotency key failed, and may have had a part of its effects. It is"
    " not carried out again under this key.",
)
UNAVAILABLE: Final = ProblemKind(
    "unavailable",
    503,
    "Temporarily unavailable",
    "It is unknown at the moment whether this request was carried out before, so it is not carried"
    " out. Send the same request again later.",
)
NOT_RECORDED: Final = ProblemKind(
    "not_recorded",
    503,
    "Outcome not recorded",
    "The request was carried out, but its outcome could not be stored, or it is unknown whether it"
    " was. Send the same request again later, under the same key, to find out.",
)
CONFLICT_RETRY: Final = ProblemKind(
    "conflict_retry",
    503,
    "Conflict with another request",
    "The request conflicted with another one that changed the same rows, and was rolled back."
    " Send the same request again.",
)

KINDS: Final[tuple[ProblemKind, ...]] = (
    KEY_MISSING, KEY_INVALID, KEY_EXPIRED, NOT_CONFIGURED, NOTHING_SELECTED, INCOMPLETE,
    NOT_IDENTIFIED, IN_PROGRESS, OUTCOME_UNKNOWN, RESPONSE_NOT_KEPT, LEASE_LOST, TOO_LARGE,
    KEY_REUSED, ATTEMPT_FAILED, UNAVAILABLE, NOT_RECORDED, CONFLICT_RETRY,
)  # fmt: skip
"""The registry. A code is never renamed and never reused for something else."""


def make(
    kind: ProblemKind,
    detail: str | None = None,
    *,
    retry_after: timedelta | float | None = None,
    extra: dict[str, Any] | None = None,
) -> Problem:
    """A problem of this kind; `retry_after` is rounded up to whole seconds, at least one."""
    return Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=kind.detail if detail is None else detail,
        code=kind.code,
        retry_after=None if retry_after is None else whole_seconds(retry_after),
        extra={} if extra is None else extra,
    )


def key_missing(header: str) -> Problem:
    """The route requires a key, and the request has none."""
    return make(
        KEY_MISSING,
        f"This request needs the header {header}: a text that you choose, new for every new"
        " request and the same for every retry of it. Nothing was done.",
    )


def key_invalid(reason: str) -> Problem:
    """The key is not valid; `reason` follows "The idempotency key"."""
    return make(KEY_INVALID, f"The idempotency key {reason}. Nothing was done.")


def too_large(limit: int) -> Problem:
    """The body is over a limit, in bytes."""
    return make(TOO_LARGE, f"The body has more than {limit} bytes. Nothing was done.")


def _path(path: str) -> str:
    # Two slashes in front would be read as the name of a host.
    return quote(f"/{path.lstrip('/')}", safe="/%:@!$&'()*+,;=~-._", errors="replace")


def _uri(link: str) -> str:
    """A link as it may stand in a header, between angle brackets."""
    return quote(link, safe="/%:@!$&'()*+,;=~-._?#[]", errors="replace")
