"""No page with a key is stored (H229)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextvars import Context
from typing import Any
from wsgiref.util import setup_testing_defaults

import httpx
import pytest

from onefold.web.forms import FormKeys, NoStore, WsgiNoStore, no_store

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


def get(app: Any) -> httpx.Headers:
    """The headers of what an ASGI application answers."""

    async def ask() -> httpx.Headers:
        transport = httpx.ASGITransport(app=NoStore(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return (await client.get("/")).headers

    return asyncio.run(ask())


@pytest.mark.parametrize(("has_key", "told"), [(True, "no-store"), (False, "max-age=60")])
def test_h229_a_page_with_a_key_is_not_stored(keys: FormKeys, *, has_key: bool, told: str) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body = keys.hidden_field("order", "a") if has_key else "hello"
        headers = [(b"cache-control", b"max-age=60"), (b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})

    headers = get(app)

    assert headers.get_list("cache-control") == [told]
    assert headers["content-type"] == "text/html"


def get_wsgi(app: Wsgi) -> dict[str, str]:
    """The headers of what a WSGI application answers."""
    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    answered: dict[str, str] = {}

    def start_response(status: str, headers: list[tuple[str, str]], error: Any = None) -> None:
        answered.update(headers)

    for _ in WsgiNoStore(app)(environ, start_response):
        pass
    return answered


def test_h229_a_page_of_wsgi_with_a_key_is_not_stored(keys: FormKeys) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        page = keys.hidden_field("order", "a")
        start_response("200 OK", [("cache-control", "max-age=60"), ("Content-Type", "text/html")])
        return [page.encode()]

    def late(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        yield from app(environ, start_response)

    for one in (app, late):
        assert get_wsgi(one) == {"Content-Type": "text/html", "Cache-Control": "no-store"}


def test_a_page_of_wsgi_without_a_key_is_left_alone() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Cache-Control", "max-age=60")])
        return []

    assert get_wsgi(app) == {"Cache-Control": "max-age=60"}


def test_h229_the_log_says_once_where_nothing_keeps_pages_out_of_caches(
    keys: FormKeys, caplog: pytest.LogCaptureFixture
) -> None:
    no_store._warn_once.cache_clear()

    with caplog.at_level("WARNING", logger="onefold.web"):
        Context().run(keys.issue, "order", "a")
        Context().run(keys.issue, "order", "a")

    (message,) = caplog.messages
    assert "wrap the application in NoStore or WsgiNoStore" in message
