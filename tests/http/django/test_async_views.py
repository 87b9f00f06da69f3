"""Django's async views, and its sync ones under ASGI."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test.utils import override_settings
from django.urls import path

from onefold import ConflictingOptions, Onefold
from onefold.django import Idempotency, Once
from tests.http.apps import AsgiClient
from tests.http.django.test_views import alice, insert
from tests.http.scenario_site import Reply
from tests.http.sync_apps import MIDDLEWARE, DjangoSite
from tests.worker.stage import until


def async_client(view: Any) -> AsgiClient:
    """Visits a view through Django's ASGI handler."""
    wrapped = DjangoSite(path("pay", view))

    class Handler(ASGIHandler):
        async def get_response_async(self, request: HttpRequest) -> Any:
            request.urlconf = wrapped.urls  # type: ignore[assignment]
            return await super().get_response_async(request)

    with override_settings(MIDDLEWARE=MIDDLEWARE):
        handler: Any = Handler()
    return AsgiClient(handler)


def asite(view: Any, project_onefold: Onefold) -> Callable[..., list[Reply]]:
    """Posts to a view several times."""
    client = async_client(view)

    def post(times: int = 2, method: str = "POST") -> list[Reply]:
        async def play() -> list[Reply]:
            headers = [("Idempotency-Key", "k"), ("Content-Type", "text/plain")]
            try:
                return [await client.request(method, "/pay", headers, b"x") for _ in range(times)]
            finally:
                await project_onefold.aclose()

        return asyncio.run(play())

    return post


@pytest.mark.parametrize("joined", [False, True])
def test_an_async_view_is_leased_or_joined_to_onefolds_own_database(
    project_onefold: Onefold, *, joined: bool
) -> None:
    runs: list[int] = []
    options: Any = {"transaction": project_onefold} if joined else {"takeover": "refuse"}

    @Idempotency()(principal=alice, **options)
    async def pay(request: HttpRequest, once: Once) -> HttpResponse:
        await asyncio.sleep(0)
        runs.append(1)
        if joined:
            await once.connection.execute("create table receipt (id integer)")
        return HttpResponse(f"paid {once.request_key}", status=201)

    first, retry = asite(pay, project_onefold)()

    assert [first.body, retry.body, retry.is_replay] == [b"paid k", b"paid k", True]
    assert len(runs) == 1


def test_h135_an_exception_is_answered_as_its_retry(
    project_onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    async def caller(_request: HttpRequest) -> int:
        await asyncio.sleep(0)
        return 7

    @Idempotency()(principal=caller, takeover="refuse")
    async def pay(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        raise ValueError("oh")

    first, retry = asite(pay, project_onefold)()

    assert [first.status, first.code, retry.is_replay] == [500, "attempt_failed", True]
    assert first.body == retry.body
    assert "ValueError: oh" in caplog.text


def test_an_async_view_answers_in_parts(project_onefold: Onefold) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"a", b"b"):
            await asyncio.sleep(0)
            yield part

    @Idempotency()(principal=alice, takeover="refuse")
    async def pay(request: HttpRequest) -> StreamingHttpResponse:
        await asyncio.sleep(0)
        return StreamingHttpResponse(parts())

    first, retry = asite(pay, project_onefold)()

    assert [first.body, retry.body, retry.is_replay] == [b"ab", b"ab", True]
    assert asite(pay, project_onefold)(1, "GET")[0].body == b"ab"


def test_a_sync_view_is_joined_under_asgi_too(
    rows: Callable[[], int], project_onefold: Onefold
) -> None:
    @Idempotency()(principal=alice)
    def pay(request: HttpRequest) -> HttpResponse:
        insert()
        return HttpResponse(request.body)

    first, retry = asite(pay, project_onefold)()

    assert [first.body, retry.body, retry.is_replay, rows()] == [b"x", b"x", True, 1]


@pytest.mark.parametrize("raises", [False, True])
def test_h140_an_async_view_comes_to_its_end_though_its_client_has_gone(
    project_onefold: Onefold, *, raises: bool
) -> None:
    async def play() -> Reply:
        gate, has_begun = asyncio.Event(), asyncio.Event()

        @Idempotency()(principal=alice, takeover="refuse")
        async def pay(request: HttpRequest) -> HttpResponse:
            has_begun.set()
            await gate.wait()
            if raises:
                raise ValueError("oh")
            return HttpResponse("paid")

        client = async_client(pay)
        messages: asyncio.Queue[Any] = asyncio.Queue()
        messages.put_nowait({"type": "http.request", "body": b"x"})
        visit = asyncio.ensure_future(client.app(SCOPE, messages.get, _sent_to_nobody))
        await has_begun.wait()
        messages.put_nowait({"type": "http.disconnect"})
        await visit
        gate.set()
        replies: list[Reply] = []

        async def is_over() -> bool:
            replies.append(await client.request("POST", "/pay", HEADERS, b"x"))
            return replies[-1].status != 409

        try:
            await until(is_over)
        finally:
            await project_onefold.aclose()
        return replies[-1]

    reply = asyncio.run(play())

    assert reply.is_replay
    assert (reply.status, b"paid" in reply.body) == ((500, False) if raises else (200, True))


HEADERS = [("Idempotency-Key", "k"), ("Content-Type", "text/plain")]
SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/pay",
    "query_string": b"",
    "headers": [(name.lower().encode(), value.encode()) for name, value in HEADERS],
}


async def _sent_to_nobody(_message: Any) -> None:
    """The client has gone."""


def test_djangos_transaction_is_not_for_async_views(project_onefold: Onefold) -> None:
    async def pay(request: HttpRequest) -> HttpResponse:
        raise SynchronousOnlyOperation

    with pytest.raises(ConflictingOptions, match="has no transactions in async views"):
        Idempotency()(principal=alice)(pay)
    with pytest.raises(ConflictingOptions, match="forward is for plain views"):
        Idempotency()(principal=alice, takeover="refuse", stream="forward")(pay)
