"""Reports requests while handlers are checked: of httpx, requests, urllib and aiohttp."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError

from onefold.testing.points import (
    Patch,
    RecordedEffect,
    current,
    inside,
    line_of_application,
    wait_awaiting,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class _OutgoingCall:
    """A request on its way out."""

    def __init__(self, method: str, url: object, content: object, headers: Any) -> None:
        self.trace = None if inside.get() else current.get()
        self.line = None
        if self.trace is not None:
            self.line = line_of_application()
        self.is_read = method.upper() in _READS
        body = (
            content
            if isinstance(content, str | bytes)
            else b""
            if content is None
            else repr(content)
        )
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        named = headers.items() if hasattr(headers, "items") else headers or ()
        key = next((str(value) for name, value in named if _is_key(name)), None)
        self.text = f"{method.upper()} {url}"
        # A repeated PUT or DELETE has the same effect, by the rules of HTTP.
        if key is None and method.upper() in {"PUT", "DELETE"}:
            key = f"{self.text} {text}"
        self.effect = RecordedEffect(self.text, text, key)

    def run(self, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        trace, line = self.trace, self.line
        if trace is None or line is None or self.is_read:
            return call()
        if trace.reach("call", "before", self.text, line):
            trace.wait()
        token = inside.set(True)
        try:
            answer = call()
        except HTTPError:  # an answer, of urllib
            trace.effects.append(self.effect)
            raise
        finally:
            inside.reset(token)
        trace.effects.append(self.effect)
        is_lost = True
        try:
            is_lost = trace.loses_answer()
            if trace.reach("call", "after", self.text, line):
                trace.wait()
        finally:
            if is_lost or trace.is_dead:
                answer.close()
        if is_lost:
            raise lost()
        return answer

    async def arun(self, call: Callable[[], Awaitable[Any]], lost: Callable[[], Exception]) -> Any:
        trace, line = self.trace, self.line
        if trace is None or line is None or self.is_read:
            return await call()
        if trace.reach("call", "before", self.text, line):
            await wait_awaiting(trace)
        token = inside.set(True)
        try:
            answer = await call()
        finally:
            inside.reset(token)
        trace.effects.append(self.effect)
        is_lost = True
        try:
            is_lost = trace.loses_answer()
            if trace.reach("call", "after", self.text, line):
                await wait_awaiting(trace)
        finally:
            if is_lost or trace.is_dead:
                await answer.aclose() if hasattr(answer, "aclose") else answer.close()
        if is_lost:
            raise lost()
        return answer


def _is_key(name: object) -> bool:
    text = name.decode("latin-1") if isinstance(name, bytes) else str(name)
    return text.lower() in {"idempotency-key", "x-idempotency-key"}


def _httpx(module: Any, patch: Patch) -> None:
    def outgoing(request: Any) -> _OutgoingCall:
        content = request.content if hasattr(request, "_content") else None
        return _OutgoingCall(request.method, request.url, content, request.headers)

    def lost(request: Any) -> Exception:
        text = "the connection was lost before the answer came"
        error: Exception = module.ReadError(text, request=request)
        return error

    def make(send: Any) -> Any:
        @wraps(send)
        def wrapper(self: Any, request: Any, **options: Any) -> Any:
            return outgoing(request).run(
                lambda: send(self, request, **options), partial(lost, request)
            )

        return wrapper

    def amake(send: Any) -> Any:
        @wraps(send)
        async def wrapper(self: Any, request: Any, **options: Any) -> Any:
            return await outgoing(request).arun(
                lambda: send(self, request, **options), partial(lost, request)
            )

        return wrapper

    patch(module.Client, "send", make)
    patch(module.AsyncClient, "send", amake)


def _requests(module: Any, patch: Patch) -> None:
    def make(send: Any) -> Any:
        @wraps(send)
        def wrapper(self: Any, request: Any, **options: Any) -> Any:
            call = _OutgoingCall(request.method, request.url, request.body, request.headers)
            return call.run(
                lambda: send(self, request, **options),
                lambda: module.ConnectionError("the connection was lost before the answer came"),
            )

        return wrapper

    patch(module.Session, "send", make)


def _urllib(module: Any, patch: Patch) -> None:
    def make(opened: Any) -> Any:
        @wraps(opened)
        def wrapper(self: Any, request: Any, data: Any = None, *args: Any, **options: Any) -> Any:
            if isinstance(request, str):
                request = module.Request(request, data)
            elif data is not None:
                request.data = data
            call = _OutgoingCall(
                request.get_method(), request.full_url, request.data, dict(request.header_items())
            )
            return call.run(
                lambda: opened(self, request, None, *args, **options),
                lambda: ConnectionResetError("the connection was lost before the answer came"),
            )

        return wrapper

    patch(module.OpenerDirector, "open", make)


def _aiohttp(module: Any, patch: Patch) -> None:
    def make(request: Any) -> Any:
        @wraps(request)
        async def wrapper(self: Any, method: str, url: Any, **options: Any) -> Any:
            content = options.get("json", options.get("data"))
            headers = self._prepare_headers(options.get("headers"))  # with those of the session
            call = _OutgoingCall(method, self._build_url(url), content, headers)
            return await call.arun(
                lambda: request(self, method, url, **options), module.ServerDisconnectedError
            )

        return wrapper

    patch(module.ClientSession, "_request", make)


PATCHES: Final[dict[str, Callable[[Any, Patch], None]]] = {
    "httpx": _httpx,
    "requests": _requests,
    "urllib.request": _urllib,
    "aiohttp": _aiohttp,
}
