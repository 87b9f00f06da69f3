"""Two at a time, and many."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from onefold.events import KeyAnswered
from tests.fixtures.colours import Clock, Store
from tests.fixtures.patience import HANG
from tests.http.apps import fastapi_app
from tests.http.apps_steps import DONE, Counter
from tests.http.apps_talk import DISCONNECT, Talk, part, served_wsgi
from tests.http.scenario_modes import (
    BLOCKING_LIBRARIES,
    LEASED_POSTGRES,
    LEASED_SQLITE,
    OURS_POSTGRES,
    OURS_SQLITE,
    PLAIN,
)
from tests.http.scenario_site import ALICE, LONG, Mode, OpenSite, Shop
from tests.http.sync_apps import django_app, flask_app, wsgi_app

SHORT = timedelta(milliseconds=200)
LEASED = pytest.mark.parametrize("mode", [LEASED_SQLITE], ids=str)
EVERY = pytest.mark.parametrize("mode", PLAIN, ids=str)


@EVERY
async def test_h112_who_waits_does_not_wait_longer_than_it_may(open_site: OpenSite) -> None:
    site = await open_site(patience=SHORT, wait=SHORT)

    async with site.held():
        second = await site.post()

    assert (second.status, second.code) == (409, "in_progress")
    assert int(second.headers["retry-after"]) >= 1


@pytest.mark.parametrize("mode", [LEASED_SQLITE, LEASED_POSTGRES], ids=str)
async def test_h110_h187_retry_after_grows_with_how_long_the_first_has_run_within_its_lease(
    open_site: OpenSite, clock: Clock
) -> None:
    site = await open_site(lease=timedelta(seconds=60))
    told: list[str] = []

    async with site.held():
        for seconds in (0, 1.5, 17, 30):
            clock.advance(timedelta(seconds=seconds))
            told.append((await site.post()).headers["retry-after"])
        clock.advance(-timedelta(hours=1))
        before_it_began = await site.post()

    # After 0, 1.5, 18.5 and 48.5 seconds, of which the last leaves 11.5.
    assert told == ["1", "2", "19", "12"]
    assert before_it_began.code == "in_progress"
    assert int(before_it_began.headers["retry-after"]) >= 1


@LEASED
async def test_every_answer_to_a_key_is_told_with_its_route(
    open_site: OpenSite, clock: Clock
) -> None:
    site = await open_site(takeover="rerun", lease=timedelta(seconds=60))
    told: list[Any] = []
    site.shop.onefold.subscribe(told.append)
    acme = {"X-Tenant": "acme"}

    async with site.held(headers=acme):
        await site.post(headers=acme)
    await site.post(headers=acme)
    await site.post(headers=acme, body=b"other")
    async with site.held(headers=acme, key="zombie") as zombie:
        clock.advance(timedelta(seconds=61))
        await site.post(headers=acme, key="zombie")
    await zombie

    answers = [event for event in told if isinstance(event, KeyAnswered)]
    outcomes = [event.outcome for event in answers]
    assert outcomes == ["busy", "won", "replayed", "mismatch", "won", "lost"]
    where = {(event.surface, event.tenant, event.route) for event in answers}
    assert where == {("http", "acme", "POST /pay")}


@LEASED
async def test_h200_h201_our_409_is_told_from_the_handlers_by_its_type(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    site.answers(409, b'{"type": "about:blank"}', [("Content-Type", "application/problem+json")])

    async with site.held():
        ours = await site.post()
    theirs = await site.post()

    assert (ours.status, theirs.status, theirs.is_replay) == (409, 409, True)
    assert theirs.body == b'{"type": "about:blank"}'
    assert set(ours.problem) == {"type", "title", "status", "detail", "instance", "code"}
    assert ours.problem["type"] == "urn:onefold:problem:in_progress"
    assert ours.problem["instance"] == "/pay"


@LEASED
async def test_h116_one_who_leaves_while_waiting_does_not_disturb_the_first(
    open_site: OpenSite,
) -> None:
    site = await open_site(wait=timedelta(seconds=LONG))
    body = b'{"amount": 1}'

    async with site.held(body=body) as first:
        talk = Talk(fastapi_app(site.shop), part(body), DISCONNECT)
        await asyncio.wait_for(talk.run(), LONG)
        assert not first.done()

    assert talk.status == 409
    assert (await first).status == 201
    assert site.shop.runs == 1


@LEASED
async def test_h117_no_more_than_so_many_wait(open_site: OpenSite) -> None:
    site = await open_site(wait=timedelta(seconds=LONG), waiters=1)

    async with site.held():
        others = {asyncio.create_task(site.post()) for _ in range(2)}
        told, waiting = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().code for task in told] == ["in_progress"]

    assert [(await task).is_replay for task in waiting] == [True]


@pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES, LEASED_SQLITE], ids=str)
async def test_h117_one_event_loop_can_wait_for_itself(open_site: OpenSite) -> None:
    site = await open_site(patience=SHORT, wait=timedelta(seconds=LONG))

    async with site.held():
        others = [asyncio.create_task(site.post()) for _ in range(8)]
    replies = await asyncio.gather(*others)

    assert {(reply.status, reply.is_replay) for reply in replies} == {(201, True)}
    assert site.payments == [1]


@EVERY
async def test_h120_a_handler_that_calls_itself_with_its_own_key_is_told_and_not_stuck(
    open_site: OpenSite,
) -> None:
    site = await open_site(patience=SHORT)
    told: list[str] = []

    async def call_itself() -> None:
        told.append((await site.post()).code)

    site.shop.meanwhile = call_itself
    first = await site.post()

    assert (first.status, told) == (201, ["in_progress"])
    assert site.shop.runs == 1


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (wsgi_app, OURS_POSTGRES),
        (flask_app, BLOCKING_LIBRARIES[0]),
        (django_app, LEASED_SQLITE),
    ],
)
async def test_h113_of_many_at_once_one_runs_and_none_fails(
    open_site: OpenSite, make: Callable[[Shop], Any]
) -> None:
    site = await open_site()
    headers = {"Idempotency-Key": "k", "Authorization": ALICE, "Content-Type": "text/plain"}

    with served_wsgi(make(site.shop)) as url:

        def post() -> int:
            answer = httpx.post(f"{url}/pay", content=b"{}", headers=headers, timeout=HANG)
            return answer.status_code

        statuses = await asyncio.gather(*(asyncio.to_thread(post) for _ in range(24)))

    assert set(statuses) <= {201, 409}
    assert (site.shop.runs, site.payments) == (1, [1])


@pytest.fixture(params=["joined", "leased"])
def counter(request: pytest.FixtureRequest, store: Store, clock: Clock) -> Counter:
    onefold = store.open(clock=clock)
    if request.param == "joined":
        return Counter(onefold, transaction=onefold)
    return Counter(onefold, takeover="refuse")


@pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES], ids=str)
async def test_h118_a_first_that_ends_between_look_and_claim_is_replayed(
    counter: Counter, mode: Mode
) -> None:
    async def first() -> None:
        assert await counter.carry_out() == DONE

    answer = await counter.begin(before={counter.claim_step: first})

    assert answer is not None
    assert (answer.status, answer.body, answer.value("Idempotent-Replayed")) == (
        201,
        b"done",
        "true",
    )


@pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES], ids=str)
async def test_h114_a_key_that_vanishes_between_look_and_claim_is_claimed(
    counter: Counter, mode: Mode
) -> None:
    async def first() -> None:
        await counter.carry_out()
        await counter.registry.onefold.keys.aerase(key="k")

    exchange = counter.exchange(before={counter.claim_step: first})
    answer = await exchange.arun(exchange.begin())

    assert (answer, exchange.outcome) == (None, "won")
    await exchange.arun(exchange.finish(DONE))
