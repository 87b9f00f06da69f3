"""Django's requests and responses, as the rules see them, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException

from onefold.errors import UsageError
from onefold.surfaces.http.answer import Answer
from onefold.surfaces.http.body import digested
from onefold.surfaces.http.problem import Refused, too_large
from onefold.surfaces.http.request import Request
from onefold.surfaces.spool import said_length, spool
from onefold.surfaces.wsgi import FORMS, headers_of

if TYPE_CHECKING:
    from django.http.response import HttpResponseBase

    from onefold.surfaces.http.body import Digested
    from onefold.surfaces.http.policy import Policy
    from onefold.surfaces.http.request import Header

COOKIE: Final = "Set-Cookie"
BODY: Final = "_onefold_body"
FILE: Final = "_onefold_file"


def request_of(request: HttpRequest) -> Request:
    """The request; without what the project is mounted under."""
    found = request.resolver_match
    return Request(
        method=request.method or "",
        path=quote(request.path_info),
        query=request.META.get("QUERY_STRING", ""),
        route=None if found is None else f"/{found.route}",
        headers=tuple(headers_of(request.META)),
    )


def is_form(asked: Request) -> bool:
    """Whether a key may be in a hidden field."""
    return (asked.value("content-type") or "").startswith(FORMS)


def body_of(request: HttpRequest) -> Digested:
    """The body; what the middleware has read, if it is there."""
    found: Digested | None = getattr(request, BODY, None)
    if found is not None:
        return found
    try:
        return digested(request.body)
    except RawPostDataException as error:
        raise UsageError(
            "The body of this request was read before its key was. Put"
            " onefold.surfaces.django.IdempotencyMiddleware into MIDDLEWARE, before whatever reads"
            " it (CsrfViewMiddleware does)."
        ) from error


def keep_body(request: HttpRequest, asked: Request, policy: Policy) -> None:
    """Read the body to its end, and put it where Django finds it: uploads may be large."""
    if hasattr(request, "_body"):
        if len(request.body) > policy.max_request:
            raise Refused(too_large(policy.max_request))
        setattr(request, BODY, digested(request.body))
        return
    length = said_length(asked)
    if length is not None and length > policy.max_request:
        raise Refused(too_large(policy.max_request))
    file, body = spool(request.read, asked, policy, length=None)
    # As Django's own `body` does, but for its limit on what is in memory.
    stream: Any = request
    stream._stream = file  # noqa: SLF001
    stream._read_started = False  # noqa: SLF001
    setattr(request, FILE, file)
    setattr(request, BODY, body)


def close_with(response: HttpResponseBase, request: HttpRequest) -> None:
    """Let go of a body that was kept, when the answer is over."""
    file: Any = getattr(request, FILE, None)
    if file is not None:
        closing: Any = response
        closing._resource_closers.append(file.close)  # noqa: SLF001


def answer_of(response: HttpResponse, body: bytes) -> Answer:
    """A response with its cookies, which Django keeps apart."""
    cookies = tuple((COOKIE, morsel.OutputString()) for morsel in response.cookies.values())
    return Answer(response.status_code, (*response.items(), *cookies), body)


def add_headers(response: HttpResponseBase, headers: tuple[Header, ...]) -> None:
    """What an answer has on top of the view's own headers."""
    for name, value in headers:
        response[name.lower()] = value


def response_of(answer: Answer) -> HttpResponse:
    """An answer, as Django sends it: nothing is added to it. ASGI wants names in lower case."""
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in ((name.lower(), value) for name, value in answer.headers):
        if name == COOKIE.lower():
            response.cookies.load(value)
        elif name in response:
            # Django has each header once; lines of one name mean the same joined.
            response[name] = f"{response[name]}, {value}"
        else:
            response[name] = value
    return response
