"""Requests to an ASGI or WSGI application, in the same process."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec


class RouteRequest(msgspec.Struct, frozen=True):
    """A request for `assert_idempotent`."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @classmethod
    def json(
        cls,
        method: str,
        path: str,
        value: object,
        headers: Mapping[str, str] | None = None,
        **named: str,
    ) -> RouteRequest:
        """A request with a JSON body; `idempotency_key="…"` is the header Idempotency-Key."""
        given = {**(headers or {}), **{name.replace("_", "-"): v for name, v in named.items()}}
        lower = {name.lower(): text for name, text in given.items()}
        body = msgspec.json.encode(value)
        return cls(method, path, {"content-type": "application/json", **lower}, body)


class RouteResponse(msgspec.Struct, frozen=True):
    """The response to a request."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """Seconds, if the header is there."""
        return next((float(v) for n, v in self.headers if n.lower() == "retry-after"), None)


def respond(app: Any, request: RouteRequest) -> Callable[[], Any]:
    """A function that sends the request, or a coroutine function for ASGI."""
    path, _, query = request.path.partition("?")
    if inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(app.__call__):
        return _asgi(app, request, path, query)

    def wsgi() -> RouteResponse:
        headers = {
            f"HTTP_{name.upper().replace('-', '_')}": text for name, text in request.headers.items()
        }
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path),
            "QUERY_STRING": query,
            "CONTENT_TYPE": headers.pop("HTTP_CONTENT_TYPE", ""),
            "CONTENT_LENGTH": str(len(request.body)),
            "SERVER_NAME": "testserver",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(request.body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            **headers,
        }
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, given: list[tuple[str, str]], _error: object = None) -> None:
            started.append((status, given))

        parts = app(environ, start)
        try:
            body = b"".join(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        status, given = started[-1]
        return RouteResponse(int(status[:3]), tuple(given), body)

    return wsgi


def _asgi(app: Any, request: RouteRequest, path: str, query: str) -> Callable[[], Any]:
    """The same for ASGI."""

    async def asgi() -> RouteResponse:
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (b"host", b"testserver"),
                (b"content-length", str(len(request.body)).encode()),
                *((name.lower().encode(), text.encode()) for name, text in request.headers.items()),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("testserver", 80),
        }
        sent: list[dict[str, Any]] = []
        given = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await app(scope, receive, send)
        start = sent[0]
        headers = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in start["headers"])
        return RouteResponse(
            start["status"], headers, b"".join(m.get("body", b"") for m in sent[1:])
        )

    return asgi
