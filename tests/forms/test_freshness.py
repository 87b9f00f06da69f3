"""No page with a key is stored (H229)."""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any

import httpx
import pytest

from onefold.web.forms import FormKeys, NoStore, WsgiNoStore, no_store
from tests.http.test_wsgi import call

Page = Callable[[], str]


def by_asgi(page: Page) -> dict[str, str]:
    """The headers of a page of an ASGI application."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = page().encode()
        headers = [(b"cache-control", b"max-age=60"), (b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def ask() -> httpx.Headers:
        transport = httpx.ASGITransport(app=NoStore(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return (await client.get("/")).headers

    return dict(asyncio.run(ask()))


def by_wsgi(page: Page, *, is_late: bool = False) -> dict[str, str]:
    """The headers of a page of a WSGI application, which may begin when it is iterated."""

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = page().encode()
        start_response("200 OK", [("cache-control", "max-age=60"), ("Content-Type", "text/html")])
        return [body]

    def late(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        yield from app(environ, start_response)

    ((_, headers),) = call(WsgiNoStore(late if is_late else app)).starts
    return {name.lower(): value for name, value in headers}


def by_late_wsgi(page: Page) -> dict[str, str]:
    return by_wsgi(page, is_late=True)


@pytest.mark.parametrize("headers_of", [by_asgi, by_wsgi, by_late_wsgi])
def test_h229_a_page_with_a_key_is_not_stored_and_another_is_left_alone(
    keys: FormKeys, headers_of: Callable[[Page], dict[str, str]]
) -> None:
    with_key = headers_of(lambda: keys.hidden_field("order", "a"))
    without = headers_of(lambda: "hello")

    assert with_key == {"content-type": "text/html", "cache-control": "no-store"}
    assert without == {"content-type": "text/html", "cache-control": "max-age=60"}


def test_h229_the_log_says_once_where_nothing_keeps_pages_out_of_caches(
    keys: FormKeys, caplog: pytest.LogCaptureFixture
) -> None:
    no_store._warn_once.cache_clear()

    with caplog.at_level("WARNING", logger="onefold.web"):
        Context().run(keys.issue, "order", "a")
        Context().run(keys.issue, "order", "a")

    (message,) = caplog.messages
    assert "wrap the application in NoStore or WsgiNoStore" in message
