"""Replays through real sockets, with the usual middlewares in front."""

import gzip
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import httpx
import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from tests.http.apps import App, asgi_app, fastapi_app, starlette_app
from tests.http.apps_talk import granian_served, served
from tests.http.scenario_site import ALICE, Headers, OpenSite, Site

LONG_BODY = b'{"receipt": "' + b"x" * 1000 + b'"}'
JSON = ("Content-Type", "application/json")
BROWSER = {"Origin": "http://shop", "Authorization": ALICE, "Content-Type": "application/json"}

Browsing: TypeAlias = Callable[[App], AbstractContextManager[httpx.Client]]


def with_gzip(app: Any) -> App:
    return GZipMiddleware(app)


def with_all(app: Any) -> App:
    sessions = SessionMiddleware(with_gzip(app), secret_key="not secret")
    cors = CORSMiddleware(sessions, allow_origins=["http://shop"], expose_headers=["*"])
    return TrustedHostMiddleware(cors, allowed_hosts=["127.0.0.1"])


BEHIND = pytest.mark.parametrize(
    ("make", "front"), [(app, with_all) for app in (asgi_app, starlette_app, fastapi_app)]
)


@pytest.fixture(params=[served, pytest.param(granian_served, marks=pytest.mark.prove)])
def browsing(request: pytest.FixtureRequest) -> Browsing:
    """Serves an application to a browser."""

    @contextmanager
    def browse(app: App) -> Generator[httpx.Client]:
        with (
            request.param(app, lifespan="off") as (host, port),
            httpx.Client(base_url=f"http://{host}:{port}", headers=BROWSER) as client,
        ):
            yield client

    return browse


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


def posted(client: httpx.Client, *more: tuple[str, str], body: bytes = b"{}") -> httpx.Response:
    return client.post("/pay", headers=[("Idempotency-Key", "k"), *more], content=body)


def thrice(browsing: Browsing, site: Site, make: Any, front: Any) -> list[httpx.Response]:
    """The last one from a client that takes no coding."""
    names = Names(make(site.shop))
    with browsing(front(names)) as client:
        replies = [posted(client, *more) for more in ([], [], [("Accept-Encoding", "identity")])]
    assert names.seen == [name.lower() for name in names.seen]
    for reply in replies:
        assert len(reply.headers.get_list("content-length")) <= 1
    marks = [reply.headers.get("idempotent-replayed") for reply in replies]
    assert marks == [None, "true", "true"]
    return replies


@BEHIND
async def test_a_replay_is_whole_behind_other_middleware(
    open_site: OpenSite, browsing: Browsing, make: Any, front: Any
) -> None:
    site = await open_site()
    site.answers(201, LONG_BODY, [JSON])

    replies = thrice(browsing, site, make, front)

    assert [(reply.status_code, reply.content) for reply in replies] == [(201, LONG_BODY)] * 3
    assert replies[0].headers.get("content-encoding") == replies[1].headers.get("content-encoding")


@pytest.mark.parametrize("make", [asgi_app, starlette_app, fastapi_app])
@pytest.mark.parametrize(
    "own", [[("Content-Length", "%d")], [("X-Two-Words", "a"), ("x-two-words", "b")]], ids=str
)
async def test_headers_of_the_endpoints_own_stay_right(
    open_site: OpenSite, browsing: Browsing, make: Any, own: Headers
) -> None:
    packed = gzip.compress(LONG_BODY)
    site = await open_site()
    headers = [(name, value.replace("%d", str(len(packed)))) for name, value in own]
    site.answers(200, packed, [JSON, ("Content-Encoding", "gzip"), *headers])

    replies = thrice(browsing, site, make, with_gzip)

    assert [reply.content for reply in replies] == [LONG_BODY] * 3
    codings = [reply.headers.get("content-encoding") for reply in replies]
    assert codings == ["gzip", "gzip", None]
    for reply in replies:
        assert reply.headers.get_list("x-two-words") == [
            value for name, value in own if name.lower() == "x-two-words"
        ]
