"""A receiver as an ASGI application, for any server and any framework that mounts one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onefold.surfaces.http.answer import asgi_headers
from onefold.surfaces.http.request import Request
from onefold.surfaces.webhooks import answers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from onefold.surfaces.http.answer import Answer
    from onefold.surfaces.webhooks.receiver import Webhook

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]


class AsgiWebhook:
    """Mount it, or give it to a route."""

    def __init__(self, webhook: Webhook) -> None:
        """Made by `Webhook.asgi`."""
        self._webhook = webhook

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive one request."""
        if scope["type"] != "http":
            return
        request = request_of(scope)
        answer = self._webhook.probed(request.method)
        if answer is None:
            body = await read_body(request, receive, self._webhook.settings.max_body)
            if body is None:
                return
            answer = body if not isinstance(body, bytes) else None
            if isinstance(body, bytes):
                answer = await self._webhook.areceive(request, body)
        if answer is not None:
            await send_answer(answer, send, head=request.method == "HEAD")


def request_of(scope: Scope) -> Request:
    """The request of a scope."""
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")
    return Request(
        method=scope["method"],
        path=path,
        query=scope.get("query_string", b"").decode("latin-1"),
        headers=tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ),
    )


async def read_body(request: Request, receive: Receive, limit: int) -> bytes | Answer | None:
    """The body; an answer where it is too long; None where the sender has gone."""
    if is_too_long(request, limit):
        return answers.too_large(limit)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            return answers.too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


def is_too_long(request: Request, limit: int) -> bool:
    """Whether the body says of itself that it is too long."""
    said = request.value("content-length") or ""
    return said.isascii() and said.isdigit() and (len(said) > len(str(limit)) or int(said) > limit)


async def send_answer(answer: Answer, send: Send, *, head: bool = False) -> None:
    """Send an answer."""
    headers = asgi_headers(answer.headers)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else answer.body})
