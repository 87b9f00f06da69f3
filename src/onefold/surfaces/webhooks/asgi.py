"""A receiver as an ASGI application: of a `Webhook`, or of the `Receiver` of pushed jobs.

Give it to a route. What Starlette and FastAPI mount at `/hook` is called for `/hook/`; their router
answers `/hook` with a redirect before it comes here, and no sender follows that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from onefold.surfaces.http.answer import asgi_headers
from onefold.surfaces.http.request import Request
from onefold.surfaces.webhooks import answers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from onefold.surfaces.http.answer import Answer

    Work = Callable[[], Awaitable[object]]
    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]


class Receives(Protocol):
    """A `Webhook`, or a `Receiver`."""

    @property
    def event(self) -> type[Any]:
        """What a handler is given."""
        ...

    @property
    def max_body(self) -> int:
        """Bytes of a body; more is 413."""
        ...

    def probed(self, method: str) -> Answer | None:
        """The answer to what is no POST."""
        ...

    async def respond(
        self,
        request: Request,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> tuple[Answer, Work | None]:
        """The answer, and what is to be done once it is sent."""
        ...


class AsgiWebhook:
    """Give it to a route: `app.add_route("/hooks", webhook.asgi, methods=["POST"])`."""

    def __init__(self, webhook: Receives) -> None:
        """Made by `Webhook.asgi` and `Receiver.asgi`."""
        self._webhook = webhook

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Receive one request."""
        if scope["type"] != "http":
            return
        request = request_of(scope)
        answer: bytes | Answer | None = self._webhook.probed(request.method)
        if answer is None:
            answer = await read_body(request, receive, self._webhook.max_body)
        afterwards: Work | None = None
        if isinstance(answer, bytes):
            answer, afterwards = await self._webhook.respond(request, answer)
        if answer is not None:
            await send_answer(answer, send, head=request.method == "HEAD")
        if afterwards is not None:
            await afterwards()


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
