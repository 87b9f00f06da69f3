"""Outgoing requests of every HTTP client: doubled ones are found, keys are recognized."""

import asyncio
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, TypeAlias
from unittest import mock

import aiohttp
import httpx
import pytest
import requests

from onefold import Run, UsageError
from onefold.testing import NotIdempotent, assert_idempotent
from tests.effects.deliveries import in_colour
from tests.fixtures.proof import proved
from tests.testing.zoo import Shop

Send: TypeAlias = Callable[[str, str, dict[str, str]], Any]

BODY = b"five"
KILLED = "Killed here, and delivered again"
LOST = "The answer to this call was lost, and the work delivered again"

# To load the certificates takes longer than all requests of a check.
CONTEXT = ssl.create_default_context()

pytestmark = pytest.mark.parametrize("shop", ["sqlite"], indirect=True)


def with_httpx(method: str, url: str, headers: dict[str, str]) -> None:
    httpx.request(method, url, content=BODY, headers=headers, verify=CONTEXT)


def with_requests(method: str, url: str, headers: dict[str, str]) -> None:
    requests.request(method, url, data=BODY, headers=headers, timeout=10)


def with_urllib(method: str, url: str, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, BODY, headers, method=method)
    urllib.request.urlopen(request).close()


async def with_async_httpx(method: str, url: str, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient(verify=CONTEXT) as client:
        await client.request(method, url, content=BODY, headers=headers)


async def with_aiohttp(method: str, url: str, headers: dict[str, str]) -> None:
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, url, data=BODY) as answer,
    ):
        await answer.read()


CLIENTS: dict[str, tuple[Send, type[Exception]]] = {
    "httpx": (with_httpx, httpx.ReadError),
    "requests": (with_requests, requests.ConnectionError),
    "urllib": (with_urllib, ConnectionResetError),
    "async httpx": (with_async_httpx, httpx.ReadError),
    "aiohttp": (with_aiohttp, aiohttp.ServerDisconnectedError),
}
"""Each with what it raises if the answer is lost."""
NAMES = ["httpx", "aiohttp", *proved("requests", "urllib", "async httpx")]


def _sent(shop: Shop, send: Send, raised: list[type[Exception]]) -> tuple[Any, Any]:
    """A job that posts without a key, and one that does nothing twice, in the colour of `send`."""
    post, put, get = (("POST", "charges"), ("PUT", "labels/7"), ("GET", "rates"))
    colour: Any = "async" if iscoroutinefunction(send) else "sync"

    async def call(what: tuple[str, str], key: str | None = None) -> None:
        method, path = what
        sent = send(method, f"{shop.bank}/{path}", {"Idempotency-Key": key} if key else {})
        if colour == "async":
            await sent

    async def bad() -> None:
        try:
            await call(post)
        except Exception as error:
            raised.append(type(error))
            raise

    async def good(run: Run) -> None:
        await call(post, run.key("charge"))
        await call(put)
        await call(get)

    return shop.onefold.job(in_colour(bad, colour)), shop.onefold.job(in_colour(good, colour))


@pytest.mark.parametrize("name", NAMES)
def test_a_request_without_a_key_is_found(shop: Shop, name: str) -> None:
    send, lost = CLIENTS[name]
    raised: list[type[Exception]] = []
    bad, _ = _sent(shop, send, raised)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)

    # It is doubled after a crash, and after a lost answer, at a line of this file.
    for scenario in (KILLED, LOST):
        found = [each for each in caught.value.findings if each.scenario == scenario]
        assert found, caught.value
        (line,) = found[-1].differences
        assert line.startswith("+ effect, once too many: POST http://127.0.0.1:")
        assert line.endswith("/charges five")
        point = found[-1].point
        assert point is not None
        assert point.line.file == __file__
        assert (point.kind, point.when) == ("call", "after")
    assert raised == [lost]


@pytest.mark.parametrize("name", NAMES)
def test_a_request_with_a_key_is_not_accused(shop: Shop, name: str) -> None:
    _, good = _sent(shop, CLIENTS[name][0], [])

    # Before the first request, after each of them, but not at the GET.
    assert assert_idempotent(good).crash_points == 3


def test_requests_in_tasks_of_their_own_are_seen(shop: Shop) -> None:
    async def both(headers: Callable[[int], dict[str, str]]) -> None:
        async with httpx.AsyncClient(verify=CONTEXT) as client, asyncio.TaskGroup() as group:
            for number in range(2):
                url = f"{shop.bank}/charges/{number}"
                group.create_task(client.post(url, content=BODY, headers=headers(number)))

    @shop.onefold.job
    async def bad() -> None:
        await both(lambda _: {})

    @shop.onefold.job
    async def good(run: Run) -> None:
        await both(lambda number: {"Idempotency-Key": run.key(f"charge-{number}")})

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)
    assert any(each.scenario == LOST for each in caught.value.findings)
    assert assert_idempotent(good).crash_points >= 3


def test_a_client_that_is_called_in_a_thread_is_seen(shop: Shop) -> None:
    @shop.onefold.job
    async def bad() -> None:
        await asyncio.to_thread(requests.post, f"{shop.bank}/charges", data=BODY, timeout=10)

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)
    found = [each.point for each in caught.value.findings if each.scenario == LOST]
    assert [point.line.file for point in found if point is not None] == [__file__]


def test_a_request_that_was_rejected_has_reached_its_receiver(shop: Shop) -> None:
    @shop.onefold.job
    def bad() -> None:
        try:
            with_urllib("PATCH", f"{shop.bank}/charges", {})  # 501: not supported
        except urllib.error.HTTPError as error:
            error.close()

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)
    assert "PATCH" in str(caught.value)


def _class() -> Any:
    return mock.patch("httpx.AsyncClient")


def _method() -> Any:
    return mock.patch.object(httpx.AsyncClient, "post")


def _specified_class() -> Any:
    return mock.patch("httpx.AsyncClient", autospec=True)


def _specified_method() -> Any:
    return mock.patch.object(httpx.AsyncClient, "post", autospec=True)


@pytest.mark.parametrize("double", [_class, _method, _specified_class, _specified_method])
def test_a_mocked_client_of_httpx_is_refused(shop: Shop, double: Callable[[], Any]) -> None:
    @shop.onefold.job
    async def handler() -> None:
        async with httpx.AsyncClient(verify=CONTEXT) as client:
            await client.post(f"{shop.bank}/charges")

    said = r"httpx\.AsyncClient is a test double.*MockTransport.*respx.*effect"
    with double(), pytest.raises(UsageError, match=said):
        assert_idempotent(handler)


def test_the_requests_of_a_mocked_transport_are_seen(shop: Shop) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200))

    @shop.onefold.job
    async def bad() -> None:
        async with httpx.AsyncClient(transport=transport) as client:
            await client.post("https://bank.example/charges", content=BODY)

    with pytest.raises(NotIdempotent, match=r"POST https://bank\.example/charges five"):
        assert_idempotent(bad)
