"""The endpoint under ASGI, WSGI and the four frameworks, over their own clients and servers."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import flask
import httpx
import psycopg_pool
import pytest
from django.db import connections
from django.http import HttpRequest
from django.test import AsyncRequestFactory, RequestFactory
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.routing import Route

from onefold import Onefold, WrongConnection
from onefold.django import webhooks as in_django
from onefold.web import fastapi as in_fastapi
from onefold.web import flask as in_flask
from onefold.web import starlette as in_starlette
from onefold.web.http import HttpRequest as Request
from onefold.web.webhooks import Received, Stripe, Twilio, Webhook
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects
from tests.fixtures.django_connections import add_database, database_settings, remove_database
from tests.fixtures.patience import HANG, LOCK
from tests.http.test_wsgi import call as wsgi_call
from tests.webhooks import senders
from tests.webhooks.senders import SECRET

BODY = json.dumps({"id": "evt_1", "type": "invoice.paid"}).encode()


def headers(body: bytes = BODY, secret: str = SECRET) -> dict[str, str]:
    asked = senders.stripe(body, datetime.now(UTC), secret=secret)
    return {**dict(asked.headers), "content-type": "application/json"}


def webhook(onefold: Onefold, **options: Any) -> Webhook:
    return Webhook(onefold, Stripe(SECRET), name="payments", max_body=1000, **options)


class Streamed(httpx.AsyncByteStream):
    """A body that does not say its length, and counts what was read of it."""

    def __init__(self) -> None:
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(100):
            self.sent += 1
            yield b"x" * 500


async def drive(app: Any, path: str, effects: Effects) -> None:
    """What every ASGI endpoint must do."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for _ in range(2):
            answer = await client.post(path, content=BODY, headers=headers())
            assert answer.status_code == 200, answer.text
        assert effects.numbers == [1]
        bad = await client.post(path, content=BODY, headers=headers(secret="x"))
        assert bad.status_code == 401
        assert (await client.post(path, content=b"x" * 1001)).status_code == 413
        streamed = Streamed()
        assert (await client.post(path, content=streamed)).status_code == 413
        assert streamed.sent <= 4, "it was read to its end"
        assert (await client.get(path)).status_code == 405


async def test_w037_starlette_makes_an_endpoint_of_a_handler(
    store: Store, effects: Effects
) -> None:
    seen: list[Any] = []

    @in_starlette.receives(webhook(store.open()))
    async def paid(event: Received, request: StarletteRequest) -> None:
        seen.append((event.type, request.path_params["shop"]))
        await event.connection.execute(effects.insert(1))

    app = Starlette(routes=[Route("/hooks/{shop}", paid, methods=["POST"])])

    await drive(app, "/hooks/tea", effects)
    assert seen == [("invoice.paid", "tea")]


async def test_w037_fastapi_makes_a_path_operation_of_a_handler(
    store: Store, effects: Effects
) -> None:
    app = FastAPI()
    seen: list[Any] = []

    def who() -> str:
        return "dependency"

    @app.post("/hooks/{shop}")
    @in_fastapi.receives(webhook(store.open()))
    async def paid(shop: str, event: Received, given: Annotated[str, Depends(who)]) -> None:
        seen.append((shop, event.id, given))
        await event.connection.execute(effects.insert(1))

    await drive(app, "/hooks/tea", effects)

    assert seen == [("tea", "evt_1", "dependency")]
    assert "/hooks/{shop}" in app.openapi()["paths"]


async def test_w037_a_handler_that_blocks_runs_in_a_thread(store: Store, effects: Effects) -> None:
    """With a connection that blocks, such as of a sync engine's."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = store.url.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(url)
    hook = webhook(store.open(), transaction=engine)

    @hook.process
    def paid(event: Received) -> None:
        event.connection.execute(sqlalchemy.text(effects.insert(1)))

    nobody: Any = None
    await hook.asgi({"type": "lifespan"}, nobody, nobody)
    await drive(hook.asgi, "/", effects)
    engine.dispose()


# --- WSGI -----------------------------------------------------------------------------------------


def call(app: Any, method: str = "POST", body: bytes = BODY, **environ: Any) -> int:
    names = {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers(body).items()
    }
    return wsgi_call(app, body, None, {**names, "REQUEST_METHOD": method, **environ}).status


def test_w033_w037_w054_the_endpoint_is_a_wsgi_application(store: Store, effects: Effects) -> None:
    hook = webhook(store.open())

    @hook.process
    def paid(event: Received) -> None:
        event.connection.execute(effects.insert(1))

    app = hook.wsgi
    assert [call(app), call(app)] == [200, 200]
    assert call(app, HTTP_STRIPE_SIGNATURE="t=1,v1=00") == 401
    assert call(app, body=b"x" * 1001) == 413
    endless: dict[str, Any] = {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
    assert call(app, body=b"x" * 2000, **endless) == 413
    assert call(app, CONTENT_LENGTH="9" * 5000) == 413
    assert call(app, CONTENT_LENGTH="") == 401
    assert call(app, CONTENT_LENGTH="²") == 401
    assert [call(app, "GET"), call(app, "HEAD"), call(app, "PUT")] == [405, 405, 405]
    store.close()
    assert effects.numbers == [1]


def test_w037_flask_makes_a_view_of_a_handler(store: Store, effects: Effects) -> None:
    app = flask.Flask("test")
    seen: list[str] = []

    @app.post("/hooks/<shop>")
    @in_flask.receives(webhook(store.open()))
    def paid(event: Received, shop: str) -> None:
        seen.append(shop)
        event.connection.execute(effects.insert(1))

    client = app.test_client()
    answers = [client.post("/hooks/tea", data=BODY, headers=headers()) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert client.post("/hooks/tea", data=BODY, headers=headers(secret="x")).status_code == 401
    assert client.post("/hooks/tea", data=b"x" * 1001).status_code == 413
    assert client.get("/hooks/tea").status_code == 405
    assert (seen, effects.numbers) == (["tea"], [1])


# --- Django ---------------------------------------------------------------------------------------


@pytest.fixture
def alias(store: Store) -> Iterator[str]:
    name = add_database(database_settings(store))
    yield name
    connections[name].close()
    remove_database(name)


def test_w037_django_makes_a_view_of_a_handler(store: Store, effects: Effects, alias: str) -> None:
    seen: list[str] = []

    @in_django.receives(webhook(store.open(), transaction=lambda: connections[alias]))
    def paid(event: Received, request: HttpRequest, shop: str) -> None:
        seen.append(f"{shop} {request.method}")
        with event.connection.cursor() as cursor:
            cursor.execute(effects.insert(1))

    def post(body: bytes = BODY, secret: str = SECRET) -> int:
        asked = RequestFactory().post(
            "/hooks/tea", body, content_type="application/json", headers=headers(body, secret)
        )
        status: int = paid(asked, shop="tea").status_code
        return status

    assert [post(), post(), post(secret="x"), post(b"x" * 1001)] == [200, 200, 401, 413]
    assert paid(RequestFactory().get("/hooks/tea"), shop="tea").status_code == 405
    assert (seen, effects.numbers) == (["tea POST"], [1])
    assert paid.csrf_exempt  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.parametrize("path", ["/a%20b/%C3%BC?x=%27y", "/%E6%97%A5%E6%9C%AC"])
def test_w028_twilio_sees_the_address_as_it_was_sent_to_django(
    store: Store, effects: Effects, path: str
) -> None:
    asked, body = senders.twilio_form({"Sid": "1"}, url="https://example.com", path=path)
    hook = Webhook(store.open(), Twilio(SECRET, "https://example.com"), name="sms")

    @in_django.receives(hook)
    def received(event: Received, request: HttpRequest) -> None:
        event.connection.execute(effects.insert(1))

    posted = RequestFactory().post(
        path, body, content_type=senders.FORM, headers=dict(asked.headers)
    )

    assert received(posted).status_code == 200
    assert effects.numbers == [1]


async def test_w037_django_makes_an_async_view_of_a_coroutine_function(
    store: Store, effects: Effects
) -> None:
    @in_django.receives(webhook(store.open()))
    async def paid(event: Received, request: HttpRequest) -> None:
        await event.connection.execute(effects.insert(1))

    statuses: list[int] = []
    for _ in range(2):
        asked = AsyncRequestFactory().post(
            "/hooks", BODY, content_type="application/json", headers=headers()
        )
        statuses.append((await paid(asked)).status_code)

    assert statuses == [200, 200]
    assert effects.numbers == [1]


async def test_w037_an_async_view_of_djangos_has_no_transaction_of_djangos(
    store: Store, alias: str
) -> None:
    """Its connections belong to threads: one request alone might be lucky, and two would not."""

    async def paid(event: Received, request: HttpRequest) -> None: ...

    with pytest.raises(WrongConnection, match="Make the handler a plain function"):
        in_django.receives(webhook(store.open(), transaction=connections[alias]))(paid)

    late = in_django.receives(webhook(store.open(), transaction=lambda: connections[alias]))(paid)
    asked = AsyncRequestFactory().post(
        "/hooks", BODY, content_type="application/json", headers=headers()
    )
    with pytest.raises(WrongConnection, match="Make the handler a plain function"):
        await late(asked)


async def test_w040_a_request_that_is_cancelled_is_undone(store: Store, effects: Effects) -> None:
    hook = webhook(store.open(busy_timeout=LOCK))
    begun = asyncio.Event()

    @hook.process
    async def paid(event: Received) -> None:
        await event.connection.execute(effects.insert(1))
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()

    asked = Request(method="POST", path="/", headers=tuple(headers().items()))
    first = asyncio.create_task(hook.areceive(asked, BODY))
    await begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    assert effects.numbers == []
    assert (await hook.areceive(asked, BODY)).status == 200
    assert effects.numbers == [1]


async def test_w040_a_handler_in_a_thread_is_waited_for_before_it_is_undone(
    postgres_url: str, postgres_schema: str
) -> None:
    """A pool would give its connection to somebody else, who would commit what it writes."""
    onefold = Onefold(postgres_url, schema=postgres_schema)
    onefold.migrate()
    table = f'"{postgres_schema}".effect'
    begun, may_go_on = threading.Event(), threading.Event()
    with psycopg_pool.ConnectionPool(postgres_url, min_size=1, max_size=1) as pool:
        with pool.connection() as connection:
            connection.execute(f"create table {table} (number integer)".encode())
        hook = webhook(onefold, transaction=pool)

        @hook.process
        def paid(event: Received) -> None:
            begun.set()
            may_go_on.wait(HANG)
            event.connection.execute(f"insert into {table} values (1)".encode())

        asked = Request(method="POST", path="/", headers=tuple(headers().items()))
        first = asyncio.create_task(hook.areceive(asked, BODY))
        await asyncio.to_thread(begun.wait, HANG)
        for _ in range(2):
            first.cancel()
            await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await first

        with pool.connection() as connection:
            rows = connection.execute(f"select number from {table}".encode()).fetchall()
    onefold.close()
    assert rows == []
