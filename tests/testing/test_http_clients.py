"""Outgoing requests of every HTTP client: doubled ones are found, keys are recognized."""

import asyncio
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, TypeAlias

import aiohttp
import httpx
import pytest
import requests

from onefold import Run
from onefold.testing import NotIdempotent, aassert_idempotent, assert_idempotent
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


SYNC: dict[str, tuple[Send, type[Exception]]] = {
    "httpx": (with_httpx, httpx.ReadError),
    "requests": (with_requests, requests.ConnectionError),
    "urllib": (with_urllib, ConnectionResetError),
}
ASYNC: dict[str, tuple[Send, type[Exception]]] = {
    "httpx": (with_async_httpx, httpx.ReadError),
    "aiohttp": (with_aiohttp, aiohttp.ServerDisconnectedError),
}


def _is_found(error: NotIdempotent) -> None:
    """The request is doubled after a crash, and after a lost answer, at a line of this file."""
    for scenario in (KILLED, LOST):
        found = [each for each in error.findings if each.scenario == scenario]
        assert found, error
        (line,) = found[-1].differences
        assert line.startswith("+ effect, once too many: POST http://127.0.0.1:")
        assert line.endswith("/charges five")
        point = found[-1].point
        assert point is not None
        assert point.line.file == __file__
        assert (point.kind, point.when) == ("call", "after")


@pytest.mark.parametrize("name", ["httpx", *proved("requests", "urllib")])
def test_a_request_without_a_key_is_found(shop: Shop, name: str) -> None:
    send, lost = SYNC[name]
    raised: list[type[BaseException]] = []

    @shop.onefold.job
    def bad() -> None:
        try:
            send("POST", f"{shop.bank}/charges", {})
        except Exception as error:
            raised.append(type(error))
            raise

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(bad)

    _is_found(caught.value)
    assert raised == [lost]


@pytest.mark.parametrize("name", ["httpx", *proved("requests", "urllib")])
def test_a_request_with_a_key_is_not_accused(shop: Shop, name: str) -> None:
    send, _ = SYNC[name]

    @shop.onefold.job
    def good(run: Run) -> None:
        send("POST", f"{shop.bank}/charges", {"Idempotency-Key": run.key("charge")})
        send("PUT", f"{shop.bank}/labels/7", {})
        send("GET", f"{shop.bank}/rates", {})

    # Before the first request, after each of them, but not at the GET.
    assert assert_idempotent(good).crash_points == 3


@pytest.mark.parametrize("name", [*proved("httpx"), "aiohttp"])
def test_an_async_request_without_a_key_is_found(shop: Shop, name: str) -> None:
    send, lost = ASYNC[name]
    raised: list[type[BaseException]] = []

    @shop.onefold.job
    async def bad() -> None:
        try:
            await send("POST", f"{shop.bank}/charges", {})
        except Exception as error:
            raised.append(type(error))
            raise

    with pytest.raises(NotIdempotent) as caught:
        asyncio.run(_acheck(bad))

    _is_found(caught.value)
    assert raised == [lost]


@pytest.mark.parametrize("name", [*proved("httpx"), "aiohttp"])
def test_an_async_request_with_a_key_is_not_accused(shop: Shop, name: str) -> None:
    send, _ = ASYNC[name]

    @shop.onefold.job
    async def good(run: Run) -> None:
        await send("POST", f"{shop.bank}/charges", {"Idempotency-Key": run.key("charge")})
        await send("PUT", f"{shop.bank}/labels/7", {})
        await send("GET", f"{shop.bank}/rates", {})

    assert assert_idempotent(good).crash_points == 3


async def _acheck(job: Any) -> None:
    await aassert_idempotent(job)


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
