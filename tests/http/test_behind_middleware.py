"""Other middleware beside ours: the usual ones in front, and a function inside or outside."""

import gzip
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import fastapi
import httpx
import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from onefold import Onefold
from onefold.web.fastapi import Idempotency, Once
from tests.fixtures.connections import Effects
from tests.http.apps import App, anybody, asgi_app, fastapi_app, starlette_app
from tests.http.apps_talk import served, visited
from tests.http.scenario_site import ALICE, Headers, OpenSite

LONG_BODY = b'{"receipt": "' + b"x" * 1000 + b'"}'
JSON = ("Content-Type", "application/json")
ZIPPED = ("Content-Encoding", "gzip")
BROWSER = {"Origin": "http://shop", "Authorization": ALICE, "Content-Type": "application/json"}


def behind_others(app: Any) -> App:
    sessions = SessionMiddleware(GZipMiddleware(app), secret_key="not secret")
    cors = CORSMiddleware(sessions, allow_origins=["http://shop"], expose_headers=["*"])
    return TrustedHostMiddleware(cors, allowed_hosts=["127.0.0.1"])


@contextmanager
def browsing(app: App) -> Generator[httpx.Client]:
    """Serves an application to a browser."""
    with (
        served(app, lifespan="off") as url,
        httpx.Client(base_url=url, headers=BROWSER) as client,
    ):
        yield client


class Names:
    """Notes the names of headers on their way out."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.seen: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def noting(message: Any) -> None:
            self.seen.extend(name for name, _ in message.get("headers", ()))
            await send(message)

        await self._app(scope, receive, noting)


ACCEPTED = ("gzip", "gzip", "identity")
PACKED = gzip.compress(LONG_BODY)


@pytest.mark.parametrize("make", [asgi_app, starlette_app, fastapi_app])
@pytest.mark.parametrize(
    ("body", "own"),
    [
        (LONG_BODY, []),
        (PACKED, [ZIPPED, ("Content-Length", str(len(PACKED)))]),
        (PACKED, [ZIPPED, ("X-Two-Words", "a"), ("x-two-words", "b")]),
    ],
    ids=["plain", "length", "twice"],
)
async def test_a_replay_is_whole_behind_other_middleware(
    open_site: OpenSite, make: Any, body: bytes, own: Headers
) -> None:
    site = await open_site()
    site.answers(201, body, [JSON, *own])
    names = Names(make(site.shop))

    with browsing(behind_others(names)) as client:
        replies = [
            client.post("/pay", headers={"Idempotency-Key": "k", "Accept-Encoding": accepted})
            for accepted in ACCEPTED
        ]

    assert names.seen == [name.lower() for name in names.seen]
    assert [(reply.status_code, reply.content) for reply in replies] == [(201, LONG_BODY)] * 3
    found = [reply.headers for reply in replies]
    assert [one.get("idempotent-replayed") for one in found] == [None, "true", "true"]
    assert [one.get("content-encoding") for one in found] == ["gzip", "gzip", None]
    for one in found:
        assert len(one.get_list("content-length")) <= 1
        assert one.get_list("x-two-words") == [
            value for name, value in own if name.lower() == "x-two-words"
        ]


def beside(onefold: Onefold, effects: Effects, *, inside: bool, fails: bool) -> fastapi.FastAPI:
    """An application with a function as middleware (Starlette's BaseHTTPMiddleware)."""
    app, idempotency = fastapi.FastAPI(), Idempotency(onefold)
    if not inside:
        idempotency.install(app)

    @app.middleware("http")
    async def timed(request: fastapi.Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Timed"] = "true"
        return response

    if inside:
        idempotency.install(app)

    @app.post("/pay", status_code=201)
    @idempotency(principal=anybody, transaction=onefold)
    async def pay(body: dict[str, int], once: Once) -> dict[str, int]:
        await once.connection.execute(effects.insert(body["amount"]))
        if fails:
            raise ValueError("after it was written")
        return body

    return app


@pytest.mark.parametrize("inside", [True, False])
async def test_h084_h137_a_function_as_middleware_may_be_inside_or_outside(
    onefold: Onefold, effects: Effects, *, inside: bool
) -> None:
    with pytest.raises(ValueError, match="after it was written"):
        await visited(beside(onefold, effects, inside=inside, fails=True), b'{"amount": 3}')
    assert (effects.numbers, effects.claims) == ([], [])
    app = beside(onefold, effects, inside=inside, fails=False)
    talks = await visited(app, b'{"amount": 3}', b'{"amount": 3}')

    assert [(talk.status, talk.body) for talk in talks] == [(201, b'{"amount":3}')] * 2
    assert [talk.headers["x-timed"] for talk in talks] == ["true", "true"]
    assert talks[1].headers["idempotent-replayed"] == "true"
    assert effects.numbers == [3]
