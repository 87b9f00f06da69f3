"""Bodies in pieces, in both directions; and what goes past us on the way."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import fastapi
import pytest
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from onefold import Onefold
from onefold.web import asgi
from tests.fixtures.connections import Effects
from tests.http.apps import App, asgi_app, fastapi_app, keyed_app
from tests.http.apps_talk import DISCONNECT, Talk, part, visited
from tests.http.scenario_modes import LEASED_SQLITE
from tests.http.scenario_site import OpenSite

SETTLED = 1


def streaming(onefold: Onefold, pieces: Any, **options: Any) -> App:
    """An application whose POST /pay answers with a stream."""

    async def pay() -> StreamingResponse:
        return StreamingResponse(pieces(), 200, media_type="text/plain")

    return keyed_app(onefold, pay, **options)


async def three() -> AsyncGenerator[bytes]:
    for piece in (b"one ", b"two ", b"three"):
        yield piece


async def breaking() -> AsyncGenerator[bytes]:
    yield b"one "
    raise ValueError("in the middle")


@pytest.mark.parametrize("app", [fastapi_app, asgi_app])
async def test_h096_the_handler_reads_the_whole_body_and_then_hears_the_client_leave(
    open_site: OpenSite, app: Any
) -> None:
    site = await open_site()
    talk = Talk(app(site.shop), part(b"[1,", more=True), part(b"2]"), DISCONNECT)

    await talk.run()

    assert site.shop.heard == [b"[1,2]"]
    assert talk.status == 201


async def test_h096_an_endpoint_that_does_not_read_hears_everything_after_the_claim(
    onefold: Onefold,
) -> None:
    heard: list[Any] = []

    async def pay(request: fastapi.Request) -> None:
        heard.extend([await request.receive() for _ in range(4)])

    app = keyed_app(onefold, pay, transaction=onefold)
    messages = [part(b"a", more=True), part(b"b"), DISCONNECT]
    await Talk(app, *messages).run()

    assert heard == [*messages, DISCONNECT]


@pytest.mark.parametrize("mode", [LEASED_SQLITE], ids=str)
async def test_h097_the_key_is_claimed_when_the_body_is_complete(open_site: OpenSite) -> None:
    site = await open_site()
    app = asgi_app(site.shop)
    slow = Talk(app, part(b"a", more=True))
    running = asyncio.create_task(slow.run())
    await slow.is_heard.wait()

    # Nobody has the key yet: another request with it wins, and the slow one is compared with it.
    quick = Talk(app, part(b"ab"))
    await quick.run()
    slow.hear(part(b"b"))
    await running

    assert (quick.status, slow.status) == (201, 201)
    assert slow.headers["idempotent-replayed"] == "true"
    assert site.shop.runs == 1


async def test_h086_a_stream_may_be_sent_as_it_comes_all_but_its_end(onefold: Onefold) -> None:
    seen: list[list[Any]] = []
    talks: list[Talk] = []

    async def watched() -> AsyncGenerator[bytes]:
        async for piece in three():
            yield piece
            seen.append([said.get("body") for said in talks[0].said])

    options: Any = {"stream": "forward", "mark_first": True}
    app = streaming(onefold, watched, takeover="refuse", **options)
    for _ in range(2):
        talks.append(Talk(app, part()))
        await talks[-1].run()
    first, retry = talks

    assert seen == [[None], [None, b"one "], [None, b"one ", b"two "]]
    assert first.headers["idempotent-replayed"] == "false"  # H073
    assert first.body == retry.body == b"one two three"


@pytest.mark.parametrize("stream", ["buffer", "forward"])
async def test_h087_a_stream_that_breaks_off_is_not_stored_as_done(
    onefold: Onefold, stream: str
) -> None:
    app = streaming(onefold, breaking, takeover="refuse", stream=stream)

    with pytest.raises(ValueError, match="in the middle"):
        await Talk(app, part()).run()
    retry = Talk(app, part())
    await retry.run()

    assert retry.status == 500
    assert b"attempt_failed" in retry.body


async def test_h087_in_a_transaction_it_is_undone_and_runs_again(onefold: Onefold) -> None:
    streams = iter([breaking(), three()])
    app = streaming(onefold, partial(next, streams), transaction=onefold)

    broken = Talk(app, part())
    with pytest.raises(ValueError, match="in the middle"):
        await broken.run()
    retry = Talk(app, part())
    await retry.run()

    # Its client has seen nothing of what is undone; Starlette's own 500 is all that was said.
    assert b"one " not in b"".join(said.get("body", b"") for said in broken.said)
    assert (retry.status, retry.body) == (200, b"one two three")


@pytest.mark.parametrize("mode_option", ["joined", "leased"])
async def test_h088_of_a_stream_without_an_end_a_tombstone_is_kept(
    onefold: Onefold, mode_option: str
) -> None:
    options: Any = {"transaction": onefold} if mode_option == "joined" else {"takeover": "refuse"}
    app = streaming(onefold, three, stream="tombstone", mark_first=True, **options)
    first, retry = await visited(app)

    assert (first.body, first.headers["idempotent-replayed"]) == (b"one two three", "false")
    pieces = [said["body"] for said in first.said if said["type"] == "http.response.body"]
    assert pieces[:3] == [b"one ", b"two ", b"three"]  # as they came
    assert retry.status == 409
    assert b"response_not_kept" in retry.body


async def test_h090_h091_ways_around_us_are_not_offered_to_the_application(
    onefold: Onefold,
) -> None:
    offered: list[set[str]] = []

    async def pay(request: fastapi.Request) -> None:
        offered.append(set(request.scope["extensions"]))

    app = keyed_app(onefold, pay, transaction=onefold, required=False)
    extensions: dict[str, Any] = {
        "http.response.pathsend": {},
        "http.response.zerocopysend": {},
        "http.response.trailers": {},
        "http.response.push": {},
    }
    await Talk(app, part(), scope={"extensions": extensions}).run()
    await Talk(app, part(), key=None, scope={"extensions": extensions}).run()

    # Without a key the answer of a joined route is kept back, too, until it is committed.
    assert offered == [{"http.response.push"}] * 2


async def test_h092_what_is_said_before_the_answer_is_passed_on_and_not_stored(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    plain = asgi.Idempotency(site.shop.onefold)
    plain.add("POST", "/pay", principal=lambda scope: "alice", transaction=site.shop.onefold)
    hint = {"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(hint)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    first, retry = await visited(plain.wrap(app))

    assert first.said[0] == hint
    assert [said["type"] for said in retry.said] == ["http.response.start", "http.response.body"]
    assert first.body == retry.body == b"done"


async def test_h095_a_background_task_runs_once_and_after_the_commit(
    onefold: Onefold, effects: Effects
) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append(effects.claims)

    async def pay() -> Response:
        return PlainTextResponse("done", background=BackgroundTask(look))

    app = keyed_app(onefold, pay, transaction=onefold)
    for _ in range(2):
        talk = Talk(app, part())
        await talk.run()
        assert talk.body == b"done"

    assert seen == [[("k", SETTLED)]]


@pytest.mark.parametrize("make", [asgi_app, fastapi_app])
async def test_h001_h003_h098_h100_a_bad_key_or_a_long_body_is_refused_unread(
    open_site: OpenSite, make: Any
) -> None:
    site = await open_site(required=False, max_request=10)
    app = make(site.shop)
    bad = Talk(app, part(b"{}"), key=None, headers=[("idempotency-key", "")])
    said = Talk(app, headers=[("content-length", "11")])
    unsaid = Talk(app, *(part(b"12345", more=True) for _ in range(3)), part())

    for talk in (bad, said, unsaid):
        await talk.run()

    assert (bad.status, bad.is_heard.is_set()) == (400, False)
    assert (said.status, said.is_heard.is_set()) == (413, False)
    assert unsaid.status == 413
    assert (site.shop.runs, site.claims) == (0, [])
    assert (await site.post(body=b"0123456789")).status == 201
