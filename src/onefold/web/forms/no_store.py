"""`Cache-Control: no-store` for pages with a key: a cached page would give two visitors one key.

`note_key` marks the page when a key is issued, and the middleware (`NoStore` for ASGI,
`WsgiNoStore` for WSGI) adds the header. A page that is streamed sets the header itself.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    AsgiApp: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
    # The second argument is start_response, which PEP 3333 lets take two or three arguments.
    WsgiApp: TypeAlias = Callable[[dict[str, Any], Any], Iterable[bytes]]

NO_STORE: Final = "no-store"

log: logging.Logger = logging.getLogger("onefold.web")


class RenderedPage:
    """The response to one request, before it is sent."""

    has_key: bool = False


# It is not reset: an application may render a page after it has returned (a generator), and the
# next request of the thread or task opens a page of its own.
_page: ContextVar[RenderedPage | None] = ContextVar("onefold.forms.page", default=None)


def open_page() -> RenderedPage:
    """Begin the page of a request."""
    page = RenderedPage()
    _page.set(page)
    return page


def note_key() -> None:
    """Mark the current page: it has a key."""
    # A page may be rendered in a thread: the context is a copy, but the page in it is the same.
    if (page := _page.get()) is not None:
        page.has_key = True
    else:
        _warn_once()


@cache
def _warn_once() -> None:
    log.warning(
        "A form key was issued, and its page may be cached: wrap the application in NoStore or"
        " WsgiNoStore, or respond with Cache-Control: no-store."
    )


class NoStore:
    """ASGI middleware that keeps pages with a key out of every cache."""

    def __init__(self, app: AsgiApp) -> None:
        """`app` is the whole application."""
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        page = open_page()

        async def send_fresh(message: Message) -> None:
            if page.has_key and message["type"] == "http.response.start":
                kept = [one for one in message.get("headers", ()) if one[0] != b"cache-control"]
                message = {**message, "headers": [*kept, (b"cache-control", NO_STORE.encode())]}
            await send(message)

        await self._app(scope, receive, send_fresh)


class WsgiNoStore:
    """WSGI middleware that keeps pages with a key out of every cache."""

    def __init__(self, app: WsgiApp) -> None:
        """`app` is the whole application."""
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """One request."""
        page = open_page()

        def start_fresh(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            if page.has_key:
                kept = [one for one in headers if one[0].lower() != "cache-control"]
                headers = [*kept, ("Cache-Control", NO_STORE)]
            return start_response(status, headers, *error)

        return self._app(environ, start_fresh)
