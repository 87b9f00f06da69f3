"""WSGI as it is spoken: a validator on both sides, and a real server with real threads."""

import asyncio
import http.client
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from onefold.web import wsgi
from tests.fixtures.patience import HANG
from tests.fixtures.waitress_server import Waitress
from tests.http.scenario_site import OpenSite, Reply, Shop
from tests.http.sync_apps import django_app, flask_app, wsgi_app
from tests.http.sync_modes import LIBRARIES, PLAIN

ALICE = "Bearer alice:first-token"


@pytest.mark.parametrize("stream", ["buffer", "forward", "tombstone"])
@pytest.mark.parametrize("mode", [PLAIN[2]], ids=str)
async def test_h093_h094_both_sides_keep_to_pep_3333(open_site: OpenSite, stream: str) -> None:
    site = await open_site(takeover="refuse")

    def app(environ: Any, start_response: Any) -> Any:
        environ["wsgi.input"].read(5)
        start_response("201 Created", [("Content-Type", "text/plain")])
        return iter([b"a", b"b"])

    idempotency = wsgi.Idempotency(site.shop.onefold)
    options: Any = {"takeover": "refuse", "stream": stream}
    idempotency.add("POST", "/", principal=lambda environ: "alice", **options)
    checked: Any = validator(idempotency.wrap(validator(app)))

    def call() -> list[str]:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST", "HTTP_IDEMPOTENCY_KEY": "k", "CONTENT_TYPE": "text/plain",
            "CONTENT_LENGTH": "0", "QUERY_STRING": "",
        }  # fmt: skip
        setup_testing_defaults(environ)
        started: list[str] = []

        def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
            started.append(status)
            return started.append

        answered = checked(environ, start_response)
        for _ in answered:
            pass
        answered.close()
        return started

    first, retry = await asyncio.to_thread(call), await asyncio.to_thread(call)
    assert first == ["201 Created"]
    assert retry == (["409 Conflict"] if stream == "tombstone" else ["201 Created"])


@pytest.fixture
def serve() -> Iterator[Callable[[Any], tuple[str, int]]]:
    """Serves an application by waitress; returns its address."""
    servers: list[Waitress] = []

    def start(app: Any) -> tuple[str, int]:
        servers.append(Waitress(app))
        return servers[-1].host, servers[-1].port

    yield start
    for server in servers:
        server.stop()


def post(host: str, port: int, body: Any = b"{}", key: str = "k") -> Reply:
    connection = http.client.HTTPConnection(host, port, timeout=HANG)
    headers = {"Idempotency-Key": key, "Authorization": ALICE, "Content-Type": "text/plain"}
    connection.request("POST", "/pay", body, headers, encode_chunked=not isinstance(body, bytes))
    found = connection.getresponse()
    reply = Reply(found.status, Any, found.read())  # type: ignore[arg-type]
    connection.close()
    return reply


@pytest.mark.parametrize(
    ("make", "mode"),
    [(wsgi_app, PLAIN[1]), (flask_app, LIBRARIES[0]), (django_app, PLAIN[2])],
)
async def test_h113_of_many_at_once_one_runs_and_none_fails(
    open_site: OpenSite, serve: Callable[[Any], tuple[str, int]], make: Callable[[Shop], Any]
) -> None:
    site = await open_site()
    where = serve(make(site.shop))

    replies = await asyncio.gather(*(asyncio.to_thread(post, *where) for _ in range(24)))

    assert {reply.status for reply in replies} <= {201, 409}
    assert (site.shop.runs, site.payments) == (1, [1])
