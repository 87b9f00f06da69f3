"""Reports requests while handlers are checked: of httpx, requests, urllib and aiohttp."""

from __future__ import annotations

from functools import partial
from inspect import iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import NonCallableMock
from urllib.error import HTTPError

from onefold.errors import UsageError
from onefold.testing.points import (
    Crash,
    Passage,
    RecordedEffect,
    inside,
    line_of_application,
    reported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onefold.testing.points import Line, Patch, Trace

_LOST: Final = "the connection was lost before the answer came"
_METHODS: Final = ("send", "request", "get", "post", "put", "patch", "delete")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class _OutgoingCall(Passage):
    """A request on its way out."""

    def __init__(
        self, method: str, url: object, content: object, headers: Any, lost: Callable[[], Exception]
    ) -> None:
        method = method.upper()
        super().__init__("call", f"{method} {url}")
        self._lost = lost
        if self.trace is None or method in _READS:
            return
        self.line = line_of_application()
        given = b"" if content is None else content
        text = (
            given.decode("utf-8", "replace")
            if isinstance(given, bytes)
            else given
            if isinstance(given, str)
            else repr(given)
        )
        named = headers.items() if hasattr(headers, "items") else headers or ()
        key = next((str(value) for name, value in named if _is_key(name)), None)
        # A repeated PUT or DELETE has the same effect, by the rules of HTTP.
        if key is None and method in {"PUT", "DELETE"}:
            key = f"{self.text} {text}"
        self._effect = RecordedEffect(self.text, text, key)

    def _passing(
        self, trace: Trace, line: Line, call: Callable[[], Any], wait: Callable[[], Any]
    ) -> Generator[Callable[[], Any], Any, Any]:
        if trace.reach("call", "before", self.text, line):
            yield wait
        token = inside.set(True)
        try:
            answer = yield call
        except HTTPError:  # an answer, of urllib
            trace.effects.append(self._effect)
            raise
        finally:
            inside.reset(token)
        trace.effects.append(self._effect)
        is_lost = trace.loses_answer()
        is_awaited = iscoroutinefunction(wait) and hasattr(answer, "aclose")
        close = answer.aclose if is_awaited else answer.close
        try:
            if trace.reach("call", "after", self.text, line):
                yield wait
        except Crash:
            yield close
            raise
        if is_lost:
            yield close
            raise self._lost()
        return answer


def _is_key(name: object) -> bool:
    text = name.decode("latin-1") if isinstance(name, bytes) else str(name)
    return text.lower() in {"idempotency-key", "x-idempotency-key"}


def _httpx(module: Any, patch: Patch) -> None:
    def passage(_client: Any, request: Any, **_options: Any) -> _OutgoingCall:
        content = request.content if hasattr(request, "_content") else None
        lost = partial(module.ReadError, _LOST, request=request)
        return _OutgoingCall(request.method, request.url, content, request.headers, lost)

    for client in ("Client", "AsyncClient"):
        _refuse_double(module, client)
        patch(getattr(module, client), "send", reported(passage))


def _refuse_double(module: Any, client: str) -> None:
    """Raise an error if a test has replaced a client of httpx: its requests would not be seen."""
    replaced = getattr(module, client)
    if all(_is_real(getattr(replaced, method, None)) for method in _METHODS):
        return
    raise UsageError(
        f"httpx.{client} is a test double, so the check does not see its requests. Keep the client"
        f" and replace its transport: httpx.{client}(transport=httpx.MockTransport(…)), or respx."
        " Or replace the function of yours that sends, by a double that declares effect(…)."
    )


def _is_real(method: object) -> bool:
    """Whether it is no double, also none with autospec: that is like a function."""
    is_double = isinstance(method, NonCallableMock) or hasattr(method, "mock")
    return isfunction(method) and not is_double


def _requests(module: Any, patch: Patch) -> None:
    def passage(_session: Any, request: Any, **_options: Any) -> _OutgoingCall:
        lost = partial(module.ConnectionError, _LOST)
        return _OutgoingCall(request.method, request.url, request.body, request.headers, lost)

    patch(module.Session, "send", reported(passage))


def _urllib(module: Any, patch: Patch) -> None:
    def passage(
        _opener: Any, request: Any, data: Any = None, *_args: Any, **_options: Any
    ) -> _OutgoingCall:
        if isinstance(request, str):
            request = module.Request(request, data)
        elif data is not None:
            request.data = data  # as `open` does
        method, headers = request.get_method(), dict(request.header_items())
        lost = partial(ConnectionResetError, _LOST)
        return _OutgoingCall(method, request.full_url, request.data, headers, lost)

    patch(module.OpenerDirector, "open", reported(passage))


def _aiohttp(module: Any, patch: Patch) -> None:
    def passage(self: Any, method: str, url: Any, **options: Any) -> _OutgoingCall:
        content = options.get("json", options.get("data"))
        headers = self._prepare_headers(options.get("headers"))  # with those of the session
        lost = module.ServerDisconnectedError
        return _OutgoingCall(method, self._build_url(url), content, headers, lost)

    patch(module.ClientSession, "_request", reported(passage))


PATCHES: Final[dict[str, Callable[[Any, Patch], None]]] = {
    "httpx": _httpx,
    "requests": _requests,
    "urllib.request": _urllib,
    "aiohttp": _aiohttp,
}
