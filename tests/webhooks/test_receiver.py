"""Receiving: verify → claim → process, on both databases, blocking and awaited."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import ConflictingOptions, InvalidInput, Onefold, UsageError
from onefold.events import WebhookAlarm, WebhookDuplicate, WebhookReceived, WebhookRejected
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.webhooks import (
    GitHub,
    Received,
    Refuse,
    SecondKey,
    Secret,
    Shopify,
    Slack,
    StandardWebhooks,
    StoredEvent,
    Stripe,
    Twilio,
    Verified,
    Webhook,
    changed_object,
)
from tests.fixtures.colours import Store
from tests.fixtures.connections import alongside
from tests.fixtures.patience import BRIEF, HANG
from tests.webhooks import senders
from tests.webhooks.endpoint import Endpoint
from tests.webhooks.senders import SECRET, WHSEC


def forged(asked: HttpRequest) -> HttpRequest:
    headers = tuple(
        (name, "v1,AAAA" if name == "webhook-signature" else value) for name, value in asked.headers
    )
    return HttpRequest(method="POST", path=asked.path, headers=headers)


async def test_w037_w038_the_effect_and_the_memory_are_one_commit(endpoint: Endpoint) -> None:
    reply = HttpResponse(200, (("Content-Type", "text/xml"),), b"<Response/>")
    endpoint.after = lambda _: reply

    assert await endpoint.send("msg_1") == reply
    assert endpoint.effects.numbers == [1]
    assert endpoint.effects.claims == [("msg_1", 1)]
    assert endpoint.told == [WebhookReceived("standard-webhooks", "orders", "processed", None, "1")]
    for _ in range(2):
        assert await endpoint.send("msg_1") == reply
        endpoint.advance(hours=1)
    assert endpoint.count == 1
    assert len(endpoint.told_of(WebhookDuplicate)) == 2


async def test_w035_w036_a_forgery_is_told_nothing_and_spoils_nothing(endpoint: Endpoint) -> None:
    asked = senders.standard(b"{}", endpoint.clock.now)
    stale = senders.standard(b"{}", endpoint.clock.now - timedelta(hours=1))

    answers = [await endpoint.receive(request) for request in (forged(asked), stale)]

    assert {answer.status for answer in answers} == {401}
    assert len({(answer.headers, answer.body) for answer in answers}) == 1
    assert endpoint.effects.claims == []
    assert (await endpoint.receive(asked)).status == 200
    assert endpoint.count == 1


async def test_w019_an_old_secret_is_told_of(endpoint: Endpoint) -> None:
    endpoint.made(Stripe([Secret("new", id="new"), Secret(SECRET, id="old")]), name="payments")

    await endpoint.receive(senders.stripe(b"{}", endpoint.clock.now))

    (event,) = endpoint.told_of(WebhookReceived)
    assert (event.secret_id, event.old_secret) == ("old", True)


class Boom(Exception):
    """What a handler may raise."""


def fail(_: Received) -> None:
    raise Boom


def answering(answer: object) -> Callable[[Received], object]:
    return lambda _: answer


@pytest.mark.parametrize(
    ("after", "status"),
    [
        (fail, 500),
        (answering(HttpResponse(503, (("Retry-After", "9"),))), 503),
        (answering({"ok": True}), 500),
        (answering(HttpResponse(200, (("X-Note", "日本"),))), 500),
        (answering(HttpResponse(200, (("X-Note", "a\r\nSet-Cookie: b=c"),))), 500),
    ],
)
async def test_w040_what_fails_or_cannot_be_sent_is_undone_and_the_redelivery_runs(
    endpoint: Endpoint, after: Callable[[Received], Any], status: int
) -> None:
    endpoint.after = after
    assert (await endpoint.send("msg_1")).status == status
    assert (endpoint.count, endpoint.effects.claims) == (0, [])
    endpoint.after = lambda _: None
    assert (await endpoint.send("msg_1")).status == 200
    assert endpoint.count == 1
    outcomes = [event.outcome for event in endpoint.told_of(WebhookReceived)]
    assert outcomes == ["failed", "processed"]


async def test_w039_a_duplicate_of_what_is_being_processed_is_told_409(
    endpoint: Endpoint, store: Store
) -> None:
    """On SQLite it waits for the one writer first, and gives up sooner than that ends."""
    impatient = store.open(clock=endpoint.clock, busy_timeout=BRIEF)
    other = Endpoint(impatient, endpoint.colour, endpoint.clock, endpoint.effects)
    inside: list[HttpResponse] = []

    async def send_again() -> HttpResponse:
        return await other.send("msg_1")

    def meanwhile(_: Received) -> None:
        # In a thread and a loop of its own, in both colours: the first one stands still.
        thread = threading.Thread(target=lambda: inside.append(asyncio.run(send_again())))
        thread.start()
        thread.join()

    endpoint.after = meanwhile
    first = await endpoint.send("msg_1")

    assert first.status == 200
    assert [answer.status for answer in inside] == [409]
    assert int(inside[0].value("Retry-After") or "") >= 1
    assert endpoint.count == 1
    assert other.told_of(WebhookReceived)[0].outcome == "busy"
    await impatient.aclose()


async def test_w039_of_many_at_once_one_is_processed(endpoint: Endpoint) -> None:
    sent = [alongside(endpoint.colour, lambda: endpoint.send("msg_1")) for _ in range(6)]
    answers = await asyncio.gather(*sent)

    assert {answer.status for answer in answers} <= {200, 409}
    assert 200 in {answer.status for answer in answers}
    assert endpoint.count == 1


@pytest.mark.parametrize(
    ("reused_id", "status", "count"), [("refuse", 422, 1), ("ignore", 200, 1), ("process", 200, 2)]
)
async def test_w042_an_id_that_comes_again_with_another_body_raises_an_alarm(
    endpoint: Endpoint, reused_id: str, status: int, count: int
) -> None:
    endpoint.made(StandardWebhooks(WHSEC), reused_id=reused_id)

    assert (await endpoint.send("msg_1", amount=1)).status == 200
    assert (await endpoint.send("msg_1", amount=2)).status == status
    assert (await endpoint.send("msg_1", amount=2)).status == status
    assert (await endpoint.send("msg_1", amount=1)).status == 200

    assert endpoint.count == count
    assert {event.reason for event in endpoint.told_of(WebhookAlarm)} == {"id reused"}


async def test_w042_stripes_count_of_deliveries_under_way_is_no_other_body(
    endpoint: Endpoint,
) -> None:
    endpoint.made(Stripe(SECRET))
    event: dict[str, Any] = {"id": "evt_1", "type": "invoice.paid", "data": {}}
    for pending in (3, 1, 0):
        body = json.dumps({**event, "pending_webhooks": pending}).encode()
        answer = await endpoint.receive(senders.stripe(body, endpoint.clock.now), body)
        assert answer.status == 200

    body = json.dumps({**event, "type": "invoice.voided", "pending_webhooks": 1}).encode()
    answer = await endpoint.receive(senders.stripe(body, endpoint.clock.now), body)
    assert answer.status == 422
    assert endpoint.count == 1


Replays = list[tuple[HttpRequest, bytes]]


def github_replays() -> Replays:
    body = b'{"ref": "refs/heads/main"}'
    return [
        (senders.github(body, delivery=delivery, event=event), body)
        for delivery, event in [("d-1", "push"), ("d-2", "push"), ("d-3", "ping"), (None, "push")]
    ]


def shopify_replays() -> Replays:
    body = b'{"id": 7}'
    replays = [senders.shopify(body, event_id=event_id) for event_id in ("e-1", "e-2", None)]
    renamed = senders.shopify(body, shop="evil.example", topic="Orders/Create")
    return [(asked, body) for asked in (*replays, renamed)]


def twilio_replays() -> Replays:
    return [
        senders.twilio_form(
            {"Sid": "1", "Status": "sent"}, url="https://example.com", path="/", token=token
        )
        for token in ("t-1", "t-2", None)
    ]


REPLAYS = [
    (GitHub(SECRET), github_replays),
    (Shopify(SECRET), shopify_replays),
    (Twilio(SECRET, "https://example.com"), twilio_replays),
]
replays = pytest.mark.parametrize(
    ("provider", "captured"), REPLAYS, ids=[provider.name for provider, _ in REPLAYS]
)


GUARDS: list[tuple[dict[str, Any], Callable[[int], list[bool]]]] = [
    ({}, lambda _: [False]),
    ({"guard": "flag"}, lambda count: [False, *[True] * (count - 1)]),
    ({"guard": "off"}, lambda count: [False] * count),
]
"""Options of the guard, and which of so many captured requests the handler sees as suspect."""


@pytest.mark.parametrize(("options", "suspects"), GUARDS, ids=["drop", "flag", "off"])
@replays
async def test_w043_a_captured_body_under_another_id_is_dropped_or_flagged(
    endpoint: Endpoint, provider: Any, captured: Callable[[], Replays], options: Any, suspects: Any
) -> None:
    endpoint.made(provider, **options)
    sent = captured()
    for one in sent:
        assert (await endpoint.receive(*one)).status == 200
    assert [event.suspect for event in endpoint.seen] == suspects(len(sent))
    alarms = {event.reason for event in endpoint.told_of(WebhookAlarm)}
    assert alarms == (set() if options == {"guard": "off"} else {"body replayed"})


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("a=b", b"Status=sent&Sid=1"),
        ("a=b", b"Sid=%31&Status=sent"),
        ("a=b", b"Sid=1&Sid=1&Status=sent"),
        ("a=b", b"Si=d1&Status=sent"),
        ("a=%62", b"Sid=1&Status=sent"),
        ("a=bSid1", b"Status=sent"),
    ],
    ids=["order", "escape", "repeated", "names", "query", "moved"],
)
async def test_w043_what_a_signature_fits_is_one_event_however_it_is_spelled(
    endpoint: Endpoint, query: str, body: bytes
) -> None:
    endpoint.made(Twilio(SECRET, "https://example.com"))
    asked, sent = senders.twilio_form(
        {"Sid": "1", "Status": "sent"}, url="https://example.com", path="/?a=b"
    )
    again = msgspec.structs.replace(
        asked, query=query, headers=(*asked.headers, ("i-twilio-idempotency-token", "t-2"))
    )

    assert (await endpoint.receive(asked, sent)).status == 200
    assert (await endpoint.receive(again, body)).status == 200
    assert endpoint.count == 1


async def test_w043_or_forgotten_after_a_while(endpoint: Endpoint) -> None:
    endpoint.made(GitHub(SECRET), guard_window=timedelta(hours=1))
    first, second, *_ = github_replays()

    await endpoint.receive(*first)
    endpoint.advance(hours=2)
    await endpoint.receive(*second)

    assert endpoint.count == 2


async def test_w043_a_failed_delivery_leaves_no_guard_behind(endpoint: Endpoint) -> None:
    endpoint.made(GitHub(SECRET))
    first, second, *_ = github_replays()
    endpoint.after = fail
    assert (await endpoint.receive(*first)).status == 500
    endpoint.after = lambda _: None
    assert (await endpoint.receive(*second)).status == 200
    assert endpoint.count == 1


async def test_w044_ids_are_their_senders_and_endpoints_own(endpoint: Endpoint) -> None:
    at, body = endpoint.clock.now, b'{"id": "msg_1"}'
    here = endpoint.made(StandardWebhooks(WHSEC), name="here")
    there = endpoint.made(StandardWebhooks(WHSEC), name="there")
    stripe = endpoint.made(Stripe(SECRET), name="here")
    tenant = Webhook(endpoint.onefold.tenant("acme"), StandardWebhooks(WHSEC), name="here")
    tenant.process(endpoint.ahandle if endpoint.colour == "async" else endpoint.handle)

    for webhook in (here, there, tenant):
        await endpoint.receive(senders.standard(body, at), body, webhook)
    await endpoint.receive(senders.stripe(body, at), body, stripe)

    assert endpoint.count == 4


async def test_w045_one_event_of_shopifys_is_one_for_each_shop_and_topic(
    endpoint: Endpoint,
) -> None:
    endpoint.made(Shopify(SECRET))
    for shop in ("tea.myshopify.com", "milk.myshopify.com"):
        body = json.dumps({"id": 7, "domain": shop}).encode()
        for topic in ("orders/create", "orders/updated"):
            for _ in range(2):
                asked = senders.shopify(body, shop=shop, topic=topic)
                assert (await endpoint.receive(asked, body)).status == 200

    assert endpoint.count == 4


async def test_w046_a_second_key_makes_twins_one(endpoint: Endpoint) -> None:
    endpoint.made(Stripe(SECRET), second_key=SecondKey(changed_object, timedelta(minutes=5)))

    async def send(event_id: str, type_: str = "charge.paid", changed: str = "ch_1") -> int:
        data = {"object": {"id": changed}}
        body = json.dumps({"id": event_id, "type": type_, "data": data}).encode()
        return (await endpoint.receive(senders.stripe(body, endpoint.clock.now), body)).status

    assert {await send("evt_1"), await send("evt_2"), await send("evt_2")} == {200}
    assert endpoint.count == 1
    assert [event.by for event in endpoint.told_of(WebhookDuplicate)] == ["second key", "id"]
    await send("evt_3", type_="charge.refunded")
    await send("evt_4", changed="ch_2")
    assert endpoint.count == 3
    endpoint.advance(minutes=6)
    await send("evt_5")
    assert endpoint.count == 4
    for body in (b'{"id": "evt_6"}', b'{"id": "evt_7", "data": []}', b'{"id": "evt_8"}'):
        await endpoint.receive(senders.stripe(body, endpoint.clock.now), body)
    assert endpoint.count == 7, "those without a second key are known by their id"


async def test_w047_events_are_remembered_for_a_month(endpoint: Endpoint) -> None:
    await endpoint.send("msg_1")
    endpoint.advance(days=29, hours=23)
    await endpoint.send("msg_1")
    assert endpoint.count == 1

    endpoint.advance(hours=2)
    await endpoint.send("msg_1")
    assert endpoint.count == 2


async def test_w048_what_happened_too_long_ago_is_refused(endpoint: Endpoint) -> None:
    endpoint.made(Stripe(SECRET), oldest=timedelta(days=30))

    async def send(created: int) -> int:
        body = json.dumps({"id": f"evt_{created}", "created": created}).encode()
        return (await endpoint.receive(senders.stripe(body, endpoint.clock.now), body)).status

    now = int(endpoint.clock.now.timestamp())
    assert await send(now - 29 * 86400) == 200
    assert await send(now - 31 * 86400) == 400
    assert endpoint.count == 1
    assert [event.code for event in endpoint.told_of(WebhookRejected)] == ["event_too_old"]


async def test_w048_the_application_may_say_when_an_event_happened(endpoint: Endpoint) -> None:
    long_ago = endpoint.clock.now - timedelta(days=31)

    def happened_at(_: Verified) -> datetime:
        return long_ago

    endpoint.made(GitHub(SECRET), oldest=timedelta(days=30), occurred_at=happened_at)

    assert (await endpoint.receive(senders.github(b"{}"))).status == 400


# --- the enqueue style ----------------------------------------------------------------------------


async def test_w050_what_is_accepted_is_stored_body_and_headers(endpoint: Endpoint) -> None:
    endpoint.made(GitHub(SECRET), enqueue="github.event", enqueue_options={"queue": "hooks"})
    body = b'{"ref": "\xff"}'
    for _ in range(2):
        assert (await endpoint.receive(senders.github(body), body)).status == 200

    (job,) = endpoint.onefold.deliveries.take(
        ["hooks"], limit=9, worker="test", lease=timedelta(minutes=1)
    )
    payload: Any = job.payload
    event = msgspec.convert(payload["event"], StoredEvent)
    assert (job.kind, job.queue) == ("github.event", "hooks")
    assert event.body == body
    assert (event.provider, event.endpoint, event.id, event.type) == (
        "github", "orders", "d-1", "push",
    )  # fmt: skip
    assert event.headers == {
        "x-github-event": "push",
        "x-github-delivery": "d-1",
        "content-type": "application/json",
    }
    assert endpoint.told_of(WebhookReceived)[0].outcome == "enqueued"


async def test_w050_the_job_and_the_memory_are_one_commit(endpoint: Endpoint, store: Store) -> None:
    endpoint.made(StandardWebhooks(WHSEC), enqueue="order.event")
    await endpoint.send("msg_1", number=7)

    handled: list[Any] = []

    @endpoint.onefold.job(kind="order.event")
    def process(event: StoredEvent) -> None:
        handled.append((event.id, event.json()))

    async with endpoint.onefold.worker(queues=["default"]):
        async with asyncio.timeout(HANG):
            while not handled:  # noqa: ASYNC110 - the worker tells nobody else
                await asyncio.sleep(0)

    assert handled == [("msg_1", {"number": 7})]
    assert endpoint.effects.claims[0] == ("msg_1", 1)


async def test_w050_what_does_not_fit_into_a_job_is_too_large(endpoint: Endpoint) -> None:
    endpoint.made(GitHub(SECRET), enqueue="github.event")
    body = b"x" * (1024 * 1024)

    assert (await endpoint.receive(senders.github(body), body)).status == 413
    assert endpoint.effects.claims == []


# --- what is no event -----------------------------------------------------------------------------


async def test_w027_slacks_challenge_is_answered_and_is_no_event(endpoint: Endpoint) -> None:
    endpoint.made(Slack(SECRET))
    body = b'{"type": "url_verification", "challenge": "3eZbrw1aB"}'

    answer = await endpoint.receive(senders.slack(body, endpoint.clock.now), body)
    unsigned = await endpoint.receive(
        senders.slack(body, endpoint.clock.now, secret="another"), body
    )

    assert (answer.status, answer.body) == (200, b"3eZbrw1aB")
    assert unsigned.status == 401
    assert endpoint.effects.claims == []
    assert endpoint.count == 0


@pytest.mark.parametrize("probe", [405, 200])
async def test_w054_a_probe_is_answered_and_is_no_event(endpoint: Endpoint, probe: int) -> None:
    endpoint.made(StandardWebhooks(WHSEC), probe=probe)
    signed = senders.standard(b"", endpoint.clock.now)

    for method, status in {"GET": probe, "HEAD": probe, "PUT": 405, "DELETE": 405}.items():
        asked = HttpRequest(method=method, path="/", headers=signed.headers)
        assert (await endpoint.receive(asked, b"")).status == status

    assert endpoint.effects.claims == []


async def test_w052_a_refusal_for_good_is_told_by_the_senders_own_means(
    endpoint: Endpoint,
) -> None:
    def refuse(_: Received) -> None:
        raise Refuse("no such customer")

    endpoint.after = refuse
    standard = await endpoint.send("msg_1")
    endpoint.made(Slack(SECRET))
    body = b'{"event_id": "Ev1"}'
    slack = await endpoint.receive(senders.slack(body, endpoint.clock.now), body)

    assert standard.status == 410
    assert standard.value("X-Slack-No-Retry") is None
    assert slack.status == 410
    assert slack.value("X-Slack-No-Retry") == "1"
    assert b"customer" not in slack.body
    assert endpoint.effects.claims == []


async def test_w053_no_secret_signature_or_body_is_logged(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"card": "4242424242424242"}'
    asked = senders.standard(body, endpoint.clock.now)
    with caplog.at_level(logging.DEBUG):
        await endpoint.receive(forged(asked), body)
        endpoint.after = fail
        await endpoint.receive(asked, body)
        endpoint.after = lambda _: None
        await endpoint.receive(asked, body)
        await endpoint.receive(asked, body)

    signature = str(asked.value("webhook-signature"))
    told = caplog.text + repr(endpoint.told)
    assert "no_match" in told
    assert "Boom" in told
    for secret in (WHSEC, WHSEC.removeprefix("whsec_"), signature, signature[3:], "4242"):
        assert secret not in told


# --- the database, the settings -------------------------------------------------------------------


async def test_w040_a_database_that_is_away_is_503(
    endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nowhere = tmp_path_factory.mktemp("gone") / "missing" / "app.db"
    async with Onefold(f"sqlite:///{nowhere}", clock=endpoint.clock) as away:
        webhook = Webhook(away, StandardWebhooks(WHSEC), name="orders")
        webhook.process(endpoint.ahandle if endpoint.colour == "async" else endpoint.handle)

        asked = senders.standard(b"{}", endpoint.clock.now)
        answer = await endpoint.receive(asked, b"{}", webhook)

    assert answer.status == 503
    assert answer.value("Retry-After") == "1"
    assert endpoint.seen == []


async def test_an_id_of_any_length_is_known_again(endpoint: Endpoint) -> None:
    for event_id in ("x" * 600, "x" * 601, "é" * 300, "\x80\xff", "x" * 600):
        assert (await endpoint.send(event_id)).status == 200

    assert endpoint.count == 4


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""}, {"name": "a:b"}, {"retention": 3}, {"retention": timedelta(0)},
        {"guard": "on"}, {"reused_id": "raise"}, {"probe": 204}, {"max_body": -1},
        {"max_body": True}, {"second_key": changed_object}, {"oldest": timedelta(0)},
        {"misspelled": 1}, {"enqueue": ""}, {"enqueue_options": {"queue": "x"}},
    ],
)  # fmt: skip
def test_settings_are_checked_at_the_start(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"name": "x", **options}

    with Onefold("sqlite:///unused.db") as onefold, pytest.raises(InvalidInput):
        Webhook(onefold, Stripe(SECRET), **given)


def test_what_a_webhook_is_made_of_is_checked() -> None:
    with pytest.raises(InvalidInput, match="window"):
        SecondKey(changed_object, timedelta(0))
    with Onefold("sqlite:///unused.db") as onefold:
        with pytest.raises(InvalidInput, match="provider"):
            Webhook(onefold, "stripe", name="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidInput, match="onefold"):
            Webhook("sqlite:///x", Stripe(SECRET), name="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_webhook_has_one_handler_or_a_job() -> None:
    def handler(event: Received) -> None:
        pytest.fail("not called")

    with Onefold("sqlite:///unused.db") as onefold:
        processing = Webhook(onefold, GitHub(SECRET), name="x")
        with pytest.raises(UsageError, match="no handler"):
            processing.receive(senders.github(b"{}"), b"{}")
        processing.process(handler)
        with pytest.raises(UsageError, match="handler already"):
            processing.process(handler)
        with pytest.raises(ConflictingOptions, match="job processes"):
            Webhook(onefold, GitHub(SECRET), name="y", enqueue="z").process(handler)
