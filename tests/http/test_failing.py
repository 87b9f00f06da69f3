"""Handlers, clients and stores that fail."""

import asyncio
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any

import fastapi
import httpx
import pytest
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from onefold import Onefold
from onefold.web.fastapi import once_of
from tests.fixtures.colours import Clock, Store
from tests.fixtures.connections import Effects
from tests.http.apps import fastapi_app, keyed_app
from tests.http.apps_steps import DONE, Counter
from tests.http.apps_talk import Talk, part, served, visited
from tests.http.scenario_modes import LEASED_POSTGRES, LEASED_SQLITE, OURS_POSTGRES, OURS_SQLITE
from tests.http.scenario_site import ALICE, LONG, Gate, OpenSite, Script

SETTLED = 1
SHORT = timedelta(milliseconds=100)
BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, LEASED_SQLITE], ids=str)
LEASED = pytest.mark.parametrize("mode", [LEASED_SQLITE], ids=str)


class Payment(BaseModel):
    amount: int


def either(onefold: Onefold, *, joined: bool) -> Any:
    """What a route says of itself."""
    return {"transaction": onefold} if joined else {"takeover": "refuse"}


# --- what a handler says --------------------------------------------------------------------------


@pytest.mark.parametrize("joined", [True, False])
async def test_h130_validation_stores_nothing_and_a_refusal_that_is_raised_is_stored(
    onefold: Onefold, effects: Effects, *, joined: bool
) -> None:
    async def pay(payment: Payment, request: fastapi.Request) -> None:
        if joined:
            await once_of(request).connection.execute(effects.insert(payment.amount))
        raise fastapi.HTTPException(402, "no funds")

    app = keyed_app(onefold, pay, **either(onefold, joined=joined))
    (wrong,) = await visited(app, b'{"amount": "x"}')
    assert (wrong.status, effects.claims) == (422, [])

    talks = await visited(app, b'{"amount": 1}', b'{"amount": 1}', b'{"amount": 2}')

    assert [talk.status for talk in talks] == [402, 402, 422]
    assert talks[1].headers["idempotent-replayed"] == "true"
    assert (effects.numbers, effects.claims) == ([], [("k", SETTLED)])


@BOTH
async def test_h043_h132_answers_that_say_later_free_the_key(open_site: OpenSite) -> None:
    site = await open_site()
    for status in (408, 425, 429, 503):
        site.answers(status)
        await site.post(key=str(status))
        site.succeeds()

        assert (await site.post(key=str(status), body=b'{"amount": 2}')).status == 201


@LEASED
@pytest.mark.parametrize("option", ["on_5xx", "on_error"])
@pytest.mark.parametrize(
    ("fate", "status", "runs"), [("store", 500, 1), ("release", 201, 2), ("unknown", 409, 1)]
)
async def test_h133_h135_a_leased_route_says_what_a_failure_means(
    open_site: OpenSite, option: str, fate: str, status: int, runs: int
) -> None:
    site = await open_site(**{option: fate})
    if option == "on_5xx":
        site.answers(500, b"oh")
    else:
        site.raises(ValueError("oh"))
    await site.post()
    site.succeeds()

    retry = await site.post()

    assert (retry.status, site.shop.runs) == (status, runs)
    if fate == "unknown":
        assert retry.code == "outcome_unknown"
        assert "retry-after" not in retry.headers


@pytest.mark.parametrize("is_async", [True, False])
def test_h135_an_exception_is_answered_as_its_retry_and_logged(
    onefold: Onefold, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    seen: list[Exception] = []

    async def apay() -> None:
        raise ValueError("oh")

    def pay() -> None:
        raise ValueError("oh")

    app = keyed_app(onefold, apay if is_async else pay, takeover="refuse")

    @app.exception_handler(Exception)
    async def report(_request: Any, error: Exception) -> JSONResponse:
        seen.append(error)
        return JSONResponse("not sent", 500)

    with served(app) as url:
        headers = {"Idempotency-Key": "k"}
        first, retry = (httpx.post(f"{url}/pay", headers=headers) for _ in range(2))

    assert (first.status_code, first.json()["code"]) == (500, "attempt_failed")
    assert (first.status_code, first.content) == (retry.status_code, retry.content)
    assert [type(error) for error in seen] == [ValueError]
    assert "ValueError: oh" in caplog.text


# --- exceptions on their way ----------------------------------------------------------------------


@BOTH
async def test_h138_a_server_that_cancels_a_request_does_not_cancel_its_handler(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    gate = Gate()
    site.shop.script = Script(gate=gate)
    request = asyncio.create_task(Talk(fastapi_app(site.shop), part(b'{"amount": 1}')).run())
    await asyncio.to_thread(gate.entered.wait, LONG)

    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    gate.opened.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=LONG)
    retry = await site.post()

    assert (retry.status, retry.is_replay) == (201, True)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("joined", [True, False])
def test_h138_h139_the_end_of_a_process_or_a_task_is_not_held_up(
    store: Store, effects: Effects, end: type[BaseException], *, joined: bool
) -> None:
    onefold = store.open()

    async def pay() -> None:
        raise end

    app = keyed_app(onefold, pay, **either(onefold, joined=joined))
    with pytest.raises(end):
        asyncio.run(Talk(app, part()).run())

    # What has begun without a transaction may have had effects: it is never run again in silence.
    assert effects.claims == ([] if joined else [("k", SETTLED)])


# --- clients that leave ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES, LEASED_SQLITE], ids=str)
async def test_h140_a_handler_whose_client_left_comes_to_its_end(open_site: OpenSite) -> None:
    site = await open_site()
    body = b'{"amount": 1}'
    gate = Gate()
    site.shop.script = Script(gate=gate)
    headers = {"Idempotency-Key": "k", "Authorization": ALICE, "Content-Type": "application/json"}
    with served(fastapi_app(site.shop)) as url:
        connection = HTTPConnection(url.removeprefix("http://"))
        connection.request("POST", "/pay", body, headers)
        assert await asyncio.to_thread(gate.entered.wait, LONG)
        connection.close()
        gate.opened.set()
    # The server has ended, and with it everything that it had begun.
    retry = await site.post(body=body)

    assert (retry.status, retry.is_replay) == (201, True)
    assert site.payments == [1]


# --- leases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [LEASED_SQLITE, LEASED_POSTGRES], ids=str)
async def test_h146_who_comes_back_after_a_takeover_tells_no_stale_success(
    open_site: OpenSite, clock: Clock
) -> None:
    site = await open_site(takeover="rerun", lease=timedelta(seconds=60))

    async with site.held() as zombie:
        clock.advance(timedelta(seconds=61))
        successor = await site.post()
    late = await zombie

    assert (successor.status, successor.body) == (201, b'{"payment": 2}')
    assert (late.status, late.code) == (409, "lease_lost")
    assert (await site.post()).body == successor.body


async def test_h151_lease_and_retention_are_two_settings(onefold: Onefold, clock: Clock) -> None:
    counter = Counter(
        onefold, takeover="rerun", lease=timedelta(seconds=60), retention=timedelta(days=1)
    )
    assert await counter.begin() is None  # and vanishes

    clock.advance(timedelta(seconds=59))
    busy = await counter.carry_out()
    clock.advance(timedelta(seconds=1))  # H150: then no time is left
    taken = await counter.carry_out()
    clock.advance(timedelta(hours=23))
    replayed = await counter.carry_out()

    assert (busy.status, busy.value("Retry-After")) == (409, "1")
    assert taken == DONE
    assert replayed.value("Idempotent-Replayed") == "true"


async def test_h154_the_same_settling_twice_is_one(onefold: Onefold) -> None:
    counter = Counter(onefold, takeover="refuse")
    exchange = counter.exchange()
    await exchange.arun(exchange.begin())

    first = await exchange.arun(exchange.finish(DONE))
    exchange.is_open = True
    second = await exchange.arun(exchange.finish(DONE))

    assert [first, second] == [DONE, DONE]


# --- the store ------------------------------------------------------------------------------------


@contextmanager
def locked(store: Store) -> Generator[None]:
    """A SQLite file that somebody else is writing to, for as long as the block."""
    connection = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    connection.execute("begin immediate")
    try:
        yield
    finally:
        connection.rollback()
        connection.close()


@LEASED
async def test_h152_without_its_store_a_keyed_request_is_not_carried_out(
    open_site: OpenSite, store: Store
) -> None:
    site = await open_site(patience=SHORT)

    with locked(store):
        reply = await site.post()

    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "unavailable", "1")
    assert site.shop.runs == 0
    assert (await site.post()).status == 201


async def test_h152_unless_the_route_runs_unprotected_and_says_so(
    store: Store, clock: Clock
) -> None:
    async def pay() -> str:
        return "paid"

    onefold = store.open(clock=clock, busy_timeout=SHORT)
    app = keyed_app(onefold, pay, takeover="rerun", fail_open=True)
    with locked(store):
        (talk,) = await visited(app, b"")

    assert (talk.status, talk.body) == (200, b'"paid"')
    assert talk.headers["idempotency-unprotected"] == "true"


@pytest.mark.parametrize("broken", ["refresh", "fingerprint"])
async def test_h152_a_function_that_fails_opens_nothing(onefold: Onefold, broken: str) -> None:
    runs: list[str] = []
    is_broken: list[bool] = []

    def function(*_: object) -> Any:
        if is_broken:
            raise RuntimeError("cannot")
        return "same"

    async def pay() -> None:
        runs.append("paid")

    options: Any = {"takeover": "rerun", "fail_open": True, broken: function}
    app = keyed_app(onefold, pay, **options)
    await visited(app, b"")
    is_broken.append(True)
    with suppress(RuntimeError):
        await visited(app, b"")

    assert runs == ["paid"]


async def test_h153_a_store_that_goes_away_before_the_end_means_unknown(
    store: Store, clock: Clock
) -> None:
    counter = Counter(store.open(clock=clock, busy_timeout=SHORT), takeover="refuse")
    exchange = counter.exchange()
    await exchange.arun(exchange.begin())

    with locked(store):
        told = await exchange.arun(exchange.finish(DONE))
    clock.advance(timedelta(minutes=2))
    retry = await counter.carry_out()

    assert (told.status, retry.status) == (503, 409)
    assert b"outcome_unknown" in retry.body


async def test_h153_or_undone_in_a_transaction(store: Store, effects: Effects) -> None:
    onefold = store.open(busy_timeout=SHORT)
    counter = Counter(onefold, transaction=onefold)
    exchange = counter.exchange()
    await exchange.arun(exchange.begin())
    await exchange.once.connection.execute("pragma query_only = on")

    told = await exchange.arun(exchange.finish(DONE))

    assert (told.status, effects.claims) == (503, [])
