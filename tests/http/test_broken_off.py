"""Requests that are broken off: in their upload, while the key is claimed, while they stream."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, ClassVar

import fastapi
import pytest
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from onefold import Done, Onefold, OutcomeUnknown
from onefold.model.claim import Holding
from onefold.runtime import Command, Runtime
from onefold.web.fastapi import Idempotency, Once
from tests.fixtures.connections import Effects
from tests.http.apps import anybody, keyed_app
from tests.http.apps_steps import Counter
from tests.http.apps_talk import DISCONNECT, Talk, part, visited
from tests.http.scenario_modes import OURS_POSTGRES, OURS_SQLITE
from tests.http.scenario_site import LONG

LEASED: dict[str, Any] = {"takeover": "refuse"}
BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES], ids=str)
OLD = {"asgi": {"version": "3.0", "spec_version": "2.3"}}


async def test_h097_a_body_that_was_cut_off_claims_nothing(
    onefold: Onefold, effects: Effects
) -> None:
    async def pay(request: fastapi.Request) -> Response:
        return PlainTextResponse(await request.body())

    app = keyed_app(onefold, pay, **LEASED)
    cut, whole = Talk(app, part(b"12", more=True), DISCONNECT), Talk(app, part(b"1234"))
    await cut.run()
    claims = effects.claims
    await whole.run()

    assert (cut.status, claims) == (400, [])
    assert b'"code":"incomplete"' in cut.body
    assert (whole.status, whole.body) == (200, b"1234")


@BOTH
@pytest.mark.parametrize("wait", [None, timedelta(seconds=1)], ids=["at once", "waiting"])
@pytest.mark.parametrize("joined", [True, False], ids=["joined", "leased"])
@pytest.mark.parametrize("is_claiming", [False, True], ids=["first command", "claim"])
async def test_h138_who_is_cancelled_while_the_key_is_claimed_has_not_claimed_it(
    onefold: Onefold, effects: Effects, *, joined: bool, wait: timedelta | None, is_claiming: bool
) -> None:
    mode: Any = {"transaction": onefold} if joined else LEASED
    counter = Counter(onefold, wait=wait, **mode)

    async def cancel() -> None:
        begun.cancel()

    exchange = counter.exchange(before={counter.claim_step if is_claiming else 0: cancel})
    begun = asyncio.ensure_future(exchange.abegin(asyncio.Event().wait))
    with pytest.raises(asyncio.CancelledError):
        await begun

    assert exchange.transaction is None
    assert not exchange.is_open
    assert [state for _, state in effects.claims] in ([], [Holding.FREE])
    assert await counter.begin() is None


class Inside:
    """Middleware that can be told to cancel what is inside of it, as timeouts do."""

    tasks: ClassVar[list[asyncio.Future[None]]] = []

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.tasks[:] = [asyncio.ensure_future(self._app(scope, receive, send))]
        await self.tasks[0]


class TooLate(Runtime):
    """A runtime that cancels the request after some commands."""

    def __init__(self, store: Any, commands: int) -> None:
        super().__init__(store)
        self._left = commands

    async def aperform(self, command: Command) -> Any:
        found = await super().aperform(command)
        self._left -= 1
        if self._left == 0:
            Inside.tasks[0].cancel()
            await asyncio.sleep(0)
        return found


@pytest.mark.parametrize(
    ("steps", "replayed"), [(1, None), (2, None), (3, "true")], ids=["look", "claim", "settle"]
)
async def test_h138_also_where_middleware_of_the_applications_cancels(
    onefold: Onefold, steps: int, replayed: str | None
) -> None:
    app, idempotency = fastapi.FastAPI(), Idempotency(onefold)
    app.add_middleware(Inside)
    idempotency.install(app)
    idempotency.registry.runtime = TooLate(idempotency.registry.runtime.store, steps)

    @app.post("/pay")
    @idempotency(principal=anybody, **LEASED)
    async def pay() -> str:
        return "paid"

    with pytest.raises(asyncio.CancelledError):
        await Talk(app, part()).run()
    again = Talk(app, part())
    await again.run()

    assert (again.status, again.body) == (200, b'"paid"')
    assert again.headers.get("idempotent-replayed") == replayed


@pytest.mark.parametrize(
    ("stream", "scope", "is_told"),
    [("buffer", OLD, False), ("forward", OLD, False), ("forward", {}, True)],
)
async def test_h140_a_stream_comes_to_its_end_though_its_client_has_gone(
    onefold: Onefold, stream: Any, scope: Any, *, is_told: bool
) -> None:
    async def pieces() -> AsyncGenerator[str]:
        for number in range(4):
            await asyncio.sleep(0)
            yield f"{number};"

    async def pay() -> StreamingResponse:
        return StreamingResponse(pieces())

    app = keyed_app(onefold, pay, stream=stream, **LEASED)
    # Of the end a server tells as ever: that is stored by then.
    with pytest.raises(ClientDisconnect) if is_told else nullcontext():
        await Talk(app, part(), DISCONNECT, scope=scope, is_cut_off=is_told).run()
    again = Talk(app, part(), scope=scope)
    await again.run()

    assert (again.status, again.body) == (200, b"0;1;2;3;")
    assert again.headers["idempotent-replayed"] == "true"


async def test_a_stream_of_no_end_hears_that_its_client_has_gone(onefold: Onefold) -> None:
    async def pieces() -> AsyncGenerator[str]:
        yield "tick;"
        talk.hear(DISCONNECT)
        while True:
            await asyncio.sleep(0)
            yield "tick;"

    async def pay() -> StreamingResponse:
        return StreamingResponse(pieces())

    app = keyed_app(onefold, pay, stream="tombstone", **LEASED)
    talk = Talk(app, part(), scope=OLD)
    await asyncio.wait_for(talk.run(), LONG)

    assert talk.status == 200


@BOTH
@pytest.mark.parametrize("takeover", ["resume", "rerun", "refuse"])
async def test_an_unsafe_step_whose_answer_is_lost_is_not_done_by_a_retry(
    onefold: Onefold, takeover: Any
) -> None:
    charged: list[str] = []
    found = iter([None, Done("receipt")])

    def charge() -> None:
        charged.append("charged")
        raise TimeoutError

    async def pay(once: Once) -> Response:
        careful = once.using(unsafe=True, verify=lambda key: next(found))
        return PlainTextResponse(await careful.astep("charge", charge))

    app = keyed_app(onefold, pay, takeover=takeover, on_error="release")
    first, retry = Talk(app, part()), Talk(app, part())
    with pytest.raises(OutcomeUnknown):
        await first.run()
    await retry.run()

    assert charged == ["charged"]
    assert first.status == 409
    assert b'"code":"outcome_unknown"' in first.body
    if takeover == "resume":
        assert (retry.status, retry.body) == (200, b"receipt")
    else:
        assert (retry.status, retry.body) == (409, first.body)


@BOTH
async def test_h144_finished_steps_count_after_an_answer_that_frees_the_key(
    onefold: Onefold,
) -> None:
    charged: list[str] = []
    answers = iter([503, 200])

    async def pay(once: Once) -> Response:
        await once.astep("charge", lambda: charged.append(once.key("charge")))
        return PlainTextResponse(str(once.resumed), next(answers))

    app = keyed_app(onefold, pay, takeover="resume")
    talks = await visited(app)

    assert [(talk.status, talk.body) for talk in talks] == [(503, b"False"), (200, b"True")]
    assert len(charged) == 1
