"""A receiver as a WSGI application, for any server and any framework that mounts one."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onefold.surfaces.http.request import Request
from onefold.surfaces.webhooks import answers
from onefold.surfaces.webhooks.asgi import is_too_long

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from onefold.surfaces.http.answer import Answer
    from onefold.surfaces.webhooks.receiver import Webhook


class WsgiWebhook:
    """Mount it, or run it."""

    def __init__(self, webhook: Webhook) -> None:
        """Made by `Webhook.wsgi`."""
        self._webhook = webhook

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Receive one request."""
        request = request_of(environ)
        answer = self._webhook.probed(request.method)
        if answer is None:
            body = read_body(request, environ, self._webhook.settings.max_body)
            answer = self._webhook.receive(request, body) if isinstance(body, bytes) else body
        start_response(status_line(answer.status), list(answer.headers))
        return [b"" if request.method == "HEAD" else answer.body]


def request_of(environ: WSGIEnvironment, path: str | None = None) -> Request:
    """The request of an environment; `path` is what somebody else knows it to be."""
    return Request(
        method=str(environ["REQUEST_METHOD"]),
        path=_path(environ) if path is None else path,
        query=str(environ.get("QUERY_STRING", "")),
        headers=tuple(_headers(environ)),
    )


def raw_path(environ: WSGIEnvironment) -> str | None:
    """The path as it was sent, where the server tells."""
    for name in ("REQUEST_URI", "RAW_URI"):
        raw: Any = environ.get(name)
        if isinstance(raw, str) and raw.startswith("/"):
            return raw.partition("?")[0]
    return None


def _path(environ: WSGIEnvironment) -> str:
    """As it was sent, as far as can be told: WSGI itself has it decoded."""
    if (raw := raw_path(environ)) is not None:
        return raw
    decoded = f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}"
    return quote(decoded.encode("latin-1"))


def _headers(environ: WSGIEnvironment) -> Iterable[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name.removeprefix("HTTP_").replace("_", "-").lower(), str(value)
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            yield name.replace("_", "-").lower(), str(value)


def read_body(request: Request, environ: WSGIEnvironment, limit: int) -> bytes | Answer:
    """The body, or an answer where it is too long."""
    if is_too_long(request, limit):
        return answers.too_large(limit)
    said = request.value("content-length") or ""
    is_said = said.isascii() and said.isdigit()
    if not is_said and not environ.get("wsgi.input_terminated"):
        return b""
    wanted = int(said) if is_said else limit + 1
    body = bytearray()
    while len(body) < wanted:
        piece: bytes = environ["wsgi.input"].read(wanted - len(body))
        if not piece:
            break
        body += piece
    return answers.too_large(limit) if len(body) > limit else bytes(body)


def status_line(status: int) -> str:
    """A status with its phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
