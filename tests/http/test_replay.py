"""The first answer, and the same again."""

import gzip
import sqlite3
from datetime import timedelta
from typing import Any

import fastapi
import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from onefold import Onefold
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.idempotency.stored_response import Kept
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects
from tests.http.apps import AsgiClient, anybody, asgi_app, bare_fastapi, fastapi_app
from tests.http.apps_talk import Talk, part
from tests.http.scenario_modes import LEASED_SQLITE, OURS_SQLITE
from tests.http.scenario_site import OpenSite, Site

SETTLED = 1
BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, LEASED_SQLITE], ids=str)


@BOTH
async def test_h070_an_answer_is_stored_before_any_of_it_is_sent(
    open_site: OpenSite, effects: Effects
) -> None:
    site = await open_site()
    seen: list[Any] = []
    inner = fastapi_app(site.shop)

    async def watching(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            seen.append((message["type"], effects.claims))
            await send(message)

        await inner(scope, receive, sent)

    await Talk(watching, part()).run()

    assert seen == [
        ("http.response.start", [("k", SETTLED)]),
        ("http.response.body", [("k", SETTLED)]),
    ]


async def test_h072_a_replay_does_not_follow_the_rows_behind_it(
    open_site: OpenSite, store: Store
) -> None:
    site = await open_site()
    first = await site.post()
    connection = sqlite3.connect(store.path)
    connection.execute(f"delete from {site.shop.effects.table}")
    connection.commit()
    connection.close()

    assert (await site.post()).body == first.body


async def test_h072_a_route_may_give_a_newer_answer_instead(open_site: OpenSite) -> None:
    async def refresh(request: HttpRequest, stored: HttpResponse) -> HttpResponse:
        return HttpResponse(stored.status, stored.headers, stored.body + request.path.encode())

    site = await open_site(refresh=refresh)
    await site.post()

    retry = await site.post()

    assert (retry.body, retry.is_replay) == (b'{"payment": 1}/pay', True)
    assert retry.headers["content-length"] == str(len(retry.body))
    assert site.payments == [1]


async def test_h073_a_first_answer_may_be_marked_as_one(open_site: OpenSite) -> None:
    site = await open_site(mark_first=True, marker="X-Replayed")

    marks = [(await site.post()).headers["x-replayed"] for _ in range(2)]

    assert marks == ["false", "true"]


async def test_h073_scripts_of_other_origins_see_the_marker_where_it_is_exposed(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    app = CORSMiddleware(
        fastapi_app(site.shop), allow_origins=["*"], expose_headers=["Idempotent-Replayed"]
    )
    site = Site(site.shop, AsgiClient(app))

    await site.post()
    retry = await site.post(headers={"Origin": "https://other.example"})

    assert retry.is_replay
    assert retry.headers["access-control-expose-headers"] == "Idempotent-Replayed"


@pytest.mark.parametrize("status", [204, 205, 304])
@pytest.mark.parametrize("make", [fastapi_app, asgi_app])
async def test_h076_an_answer_without_a_body_has_none_again(
    open_site: OpenSite, status: int, make: Any
) -> None:
    site = await open_site()
    site = Site(site.shop, AsgiClient(make(site.shop)))
    site.answers(status, headers=[("ETag", '"1"')])
    await site.post()

    retry = await site.post()

    assert (retry.status, retry.body, retry.headers["etag"]) == (status, b"", '"1"')
    assert "content-length" not in retry.headers


async def test_h078_cookies_that_are_listed_are_set_again(open_site: OpenSite) -> None:
    site = await open_site(kept=Kept(cookies=("theme",)))
    site.answers(201, headers=[("Set-Cookie", "session=s"), ("Set-Cookie", "theme=dark; Path=/")])
    await site.post()

    retry = await site.post()

    assert retry.headers.get_list("set-cookie") == ["theme=dark; Path=/"]


async def test_h080_the_id_of_the_first_request_may_be_told(open_site: OpenSite) -> None:
    site = await open_site(kept=Kept(request_id="X-Request-Id"))
    site.answers(201, headers=[("X-Request-Id", "first"), ("Date", "long ago")])
    await site.post()

    retry = await site.post()

    assert retry.headers["idempotency-original-request-id"] == "first"
    assert "x-request-id" not in retry.headers
    assert "date" not in retry.headers


async def test_h083_a_compressed_answer_is_not_sent_to_who_did_not_ask_for_one(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    site.answers(200, gzip.compress(b"plain"), [("Content-Encoding", "gzip")])
    await site.post(headers={"Accept-Encoding": "gzip"})

    packed = await site.post(headers={"Accept-Encoding": "gzip"})
    plain = await site.post(headers={"Accept-Encoding": "identity"})

    # The client unpacks what is packed.
    assert (packed.body, packed.headers["content-encoding"]) == (b"plain", "gzip")
    assert (plain.body, "content-encoding" in plain.headers) == (b"plain", False)


async def test_h084_an_outer_layer_does_to_a_replay_what_it_does_to_an_answer(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    site.answers(200, b"long " * 1000)
    site = Site(site.shop, AsgiClient(GZipMiddleware(fastapi_app(site.shop))))

    first = await site.post(headers={"Accept-Encoding": "identity"})
    packed = await site.post(headers={"Accept-Encoding": "gzip"})

    assert "content-encoding" not in first.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert first.body == packed.body


async def test_h063_the_fingerprint_is_compared_on_every_way_to_an_answer(
    open_site: OpenSite,
) -> None:
    site = await open_site(patience=timedelta(milliseconds=200))
    other = b'{"amount": 2}'

    async with site.held():
        busy = await site.post(body=other)  # at work: H051
    settled = await site.post(body=other)  # settled
    await site.post(key="late")
    again = await site.post(key="late", body=other)

    assert {reply.code for reply in (settled, again)} == {"key_reused"}
    # Joined, nobody but the first can know what it was asked before it is committed.
    assert busy.code == "in_progress"


@pytest.mark.parametrize("mode", [LEASED_SQLITE], ids=str)
async def test_h051_another_body_is_a_mistake_while_the_first_is_at_work(
    open_site: OpenSite,
) -> None:
    site = await open_site()

    async with site.held():
        assert (await site.post(body=b'{"amount": 2}')).code == "key_reused"
        assert (await site.post()).code == "in_progress"


async def test_h052_json_that_is_only_written_differently_is_another_body(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    await site.post(body=b'{"a": 1, "b": 2}')

    assert (await site.post(body=b'{"b":2,"a":1}')).code == "key_reused"


async def test_h052_unless_the_route_compares_its_value(open_site: OpenSite) -> None:
    site = await open_site(fingerprint="json")
    await site.post(body=b'{"a": 1, "b": 2}')

    assert (await site.post(body=b'{"b":2,"a":1}')).is_replay


async def test_h061_a_route_may_change_how_it_compares_and_old_keys_keep_theirs(
    open_site: OpenSite,
) -> None:
    before, after = await open_site(), await open_site(fingerprint="json")
    await before.post()

    assert (await after.post()).is_replay
    assert (await after.post(body=b'{"amount":   1}')).code == "key_reused"


async def test_h085_what_fastapi_makes_of_a_value_comes_back(onefold: Onefold) -> None:
    app, idempotency = bare_fastapi(onefold)

    @app.post("/pay", status_code=202)
    @idempotency(principal=anybody, transaction=onefold)
    async def pay(response: fastapi.Response) -> dict[str, float]:
        response.headers["X-Made"] = "here"
        return {"ä": 1.0}

    talks = [Talk(app, part()) for _ in range(2)]
    for talk in talks:
        await talk.run()

    assert [(talk.status, talk.body) for talk in talks] == [(202, '{"ä":1.0}'.encode())] * 2
    assert talks[1].headers["x-made"] == "here"
