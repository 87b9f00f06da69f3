"""A conversation: one request and its answer, between an ASGI server and an application.

Nobody's response object is looked into: the answer is what the application sends. It is kept back
until it is committed, so that no client knows of an effect that is not there.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from onefold.errors import LeaseLost, UsageError
from onefold.surfaces.attempt import AsyncAttempt
from onefold.surfaces.http.answer import Answer, asgi_headers
from onefold.surfaces.http.asked import Asked
from onefold.surfaces.http.body import Digesting, digested
from onefold.surfaces.http.problem import Refused, incomplete, too_large
from onefold.surfaces.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from onefold.surfaces.http.body import Digested
    from onefold.surfaces.http.desk import Desk, Route
    from onefold.surfaces.once import Once
    from onefold.surfaces.stage import AsyncStage

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

NOTHING: Final = digested(b"")

WHOLE: Final = 64 * 1024 * 1024
"""Of a body that is compared by its value, as many bytes are kept at most."""


class Conversation:
    """One request and its answer."""

    template: str | None = None
    """Of the route that the request matches, where it is known."""
    keeps_back: bool = False
    """Whether its answer is made to its end, though the client may have gone."""

    # Most requests come to nothing of this: what they do not need is not made for them.
    _attempt: AsyncAttempt | None = None
    _digesting: Digesting | None = None
    _is_read: bool = False
    _is_cut: bool = False
    _is_gone: bool = False
    _start: Message | None = None
    _is_started: bool = False
    _is_replaced: bool = False
    _request: Request | None = None

    def __init__(
        self, desk: Desk, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Nothing is read yet, and nothing is known of its route."""
        self.desk: Desk = desk
        self._scope = scope
        self._receive = receive
        self._send = send
        self._ahead: deque[Message] = deque()
        self._pieces: list[bytes] = []

    @property
    def request(self) -> Request:
        """The request, as the rules see it."""
        if self._request is None:
            self._request = _request(self._scope, self.template)
        return self._request

    @property
    def is_open(self) -> bool:
        """True while an answer is expected that is to be stored."""
        return self._attempt is not None and self._attempt.captures

    @property
    def once(self) -> Once | None:
        """What the handler is given; None where there is no policy."""
        return None if self._attempt is None else self._attempt.once

    # --- in ---------------------------------------------------------------------------------------

    def listen(self, longest: int = WHOLE) -> None:
        """Read along from now on: the body is to be compared. A longer one is refused anyway."""
        self._digesting = Digesting(min(longest, WHOLE), request=self.request)

    async def receive(self) -> Message:
        """What the application hears."""
        if self._ahead:
            return self._ahead.popleft()
        if self._is_gone:
            return {"type": "http.disconnect"}
        return await self._hear()

    async def _hear(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._is_cut = not self._is_read
            self._is_gone = self._is_read = True
        elif self._digesting is not None and not self._is_read:
            self._digesting.feed(message.get("body", b""))
            self._is_read = not message.get("more_body", False)
        return message

    async def _body(self, limit: int) -> Digested:
        """The whole body, though the application may not have read it yet."""
        if self._digesting is None:
            return NOTHING
        while not self._is_read and self._digesting.length <= limit:
            self._ahead.append(await self._hear())
        if self._digesting.length > limit:
            raise Refused(too_large(limit))
        if self._is_cut:
            raise Refused(incomplete())
        return self._digesting.done()

    async def disconnected(self) -> None:
        """Returns when the client has gone."""
        while not self._is_gone:
            message = await self._hear()
            if message["type"] != "http.disconnect":
                self._ahead.append(message)

    # --- the handler ------------------------------------------------------------------------------

    async def begin(
        self,
        route: Route,
        *,
        principal: object,
        tenant: object,
        stage: AsyncStage | None = None,
    ) -> Answer | None:
        """Claim the key. None means that the handler is to run; otherwise this is the answer.

        `stage` is where the framework has a transaction of its own for this request.
        """
        if self._attempt is not None:
            raise UsageError("This request has a policy already: one route, one @idempotency.")
        if route.desk is not self.desk:
            raise UsageError(
                "This endpoint has its policy from another Idempotency than the one that is"
                " installed in its application, and would keep its keys in that one's database."
            )
        self._attempt = AsyncAttempt(self.desk, route, stage)
        try:
            body = await self._body(route.policy.max_request)
        except Refused as refused:
            return Asked(self.request, NOTHING, None).refusal(refused.problem, route.policy)
        return await self._attempt.begin(
            self.request,
            body,
            principal=principal,
            tenant=tenant,
            gone=None if self._digesting is None else self.disconnected,
        )

    async def undo(self, error: BaseException) -> None:
        """The handler has raised: what it has written must not stay, whatever is answered."""
        assert self._attempt is not None
        await self._attempt.undo(error)

    async def fail(self, error: BaseException) -> bool:
        """The application has raised, or ended without an answer: answer where it is ours to do.

        True means that this is all. Otherwise the exception goes on, to handlers and logs.
        """
        if self._attempt is None:
            return False
        told = await self._attempt.fail(error)
        if told is None or self._is_started or not isinstance(error, Exception):
            return False
        with suppress(OSError):
            await self.answer(told)
        return self._attempt.is_lost_by(error)

    # --- out --------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """What the application says."""
        if self._is_replaced:
            return
        if self._attempt is None or not self._attempt.captures:
            await self._send(message)
        elif message["type"] == "http.response.start":
            own = [(name.lower(), value) for name, value in message.get("headers", ())]
            added = asgi_headers(self._attempt.added)
            self._start = {**message, "headers": [*own, *added]}
            if self._stream == "tombstone":
                await self._finish(b"")
        elif message["type"] == "http.response.body":
            await self._piece(message)
        else:
            await self._send(message)

    async def _piece(self, message: Message) -> None:
        self._pieces.append(bytes(message.get("body", b"")))
        if not message.get("more_body", False):
            await self._finish(b"".join(self._pieces))
        elif self._stream == "forward":
            await self._forward()

    async def _forward(self) -> None:
        """Send what came before the last piece: the end is not sent before it is stored."""
        assert self._start is not None
        if not self._is_started:
            self._is_started = True
            await self._send_on(self._start)
        elif len(self._pieces) > 1:
            await self._send_on(
                {"type": "http.response.body", "body": self._pieces[-2], "more_body": True}
            )

    async def _send_on(self, message: Message) -> None:
        """A client that has left does not end what was begun: the rest is made, and stored."""
        with suppress(OSError):
            await self._send(message)

    async def _finish(self, body: bytes) -> None:
        assert self._attempt is not None
        assert self._start is not None
        answer = Answer(self._start["status"], _headers(self._start), body)
        told = await self._attempt.finish(answer)
        if told is answer:
            await self._say(body)
            return
        if self._is_started:
            # Half of an answer is with the client that must not be taken for a whole one.
            raise LeaseLost("the key of this request", fence=0)
        self._is_replaced = True
        await self.answer(told)

    async def _say(self, body: bytes) -> None:
        assert self._start is not None
        if self._stream == "tombstone":
            await self._send(self._start)
            return
        if not self._is_started:
            await self._send(self._start)
        last = self._pieces[-2:] if self._is_started else [body]
        await self._send({"type": "http.response.body", "body": b"".join(last)})

    async def answer(self, answer: Answer) -> None:
        """Send an answer of ours."""
        headers = asgi_headers(answer.headers)
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        await self._send({"type": "http.response.body", "body": answer.body})

    @property
    def _stream(self) -> str:
        assert self._attempt is not None
        return self._attempt.route.policy.stream


def _headers(start: Message) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in start.get("headers", ())
    )


def _request(scope: MutableMapping[str, Any], template: str | None) -> Request:
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1").partition("?")[0]
    root = quote(scope.get("root_path", ""))
    return Request(
        method=scope["method"],
        # Whatever a proxy has put in front: it is the same route.
        path=path.removeprefix(root) or "/",
        query=scope.get("query_string", b"").decode("latin-1"),
        route=template,
        headers=tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ),
    )
