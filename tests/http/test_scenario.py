"""What every site does, whichever framework, library and database it is written with."""

import asyncio
from datetime import timedelta
from itertools import product

import pytest

from tests.fixtures.colours import Clock
from tests.http.apps import asgi_app, fastapi_app, starlette_app
from tests.http.scenario_modes import (
    BLOCKING_LIBRARIES,
    DJANGO,
    LEASED_POSTGRES,
    LEASED_SQLITE,
    LIBRARIES,
    OURS_POSTGRES,
    OURS_SQLITE,
    PLAIN,
)
from tests.http.scenario_site import BOB, LONG, Mode, OpenSite
from tests.http.sync_apps import django_app, flask_app, wsgi_app

SHORT = timedelta(milliseconds=200)
"""How long SQLite waits for its one lock where a test knows that it is held."""

# Each framework once, joined or leased; then with the libraries of applications.
SITES = [
    *product([fastapi_app], [OURS_POSTGRES, LEASED_SQLITE]),
    (starlette_app, OURS_SQLITE),
    (asgi_app, LEASED_POSTGRES),
    (wsgi_app, OURS_SQLITE),
    (flask_app, LEASED_SQLITE),
    (django_app, DJANGO[1]),
]
MORE = [
    *product([fastapi_app], [OURS_SQLITE, LEASED_POSTGRES, *LIBRARIES]),
    *product([flask_app], [*PLAIN, *BLOCKING_LIBRARIES]),
    *product([wsgi_app, django_app], [LEASED_SQLITE, LEASED_POSTGRES]),
    *product([django_app], DJANGO),
]

pytestmark = pytest.mark.parametrize(
    ("adapter", "mode"),
    [*SITES, *(pytest.param(*site, marks=pytest.mark.prove) for site in MORE if site not in SITES)],
    ids=lambda value: str(getattr(value, "__name__", value)),
)


async def test_h024_h070_h071_h096_a_retry_gets_the_same_bytes_and_the_handler_ran_once(
    open_site: OpenSite,
) -> None:
    site = await open_site()

    first = await site.post()
    retries = [await site.post(), await site.post(key=None, headers={"IDEMPOTENCY-KEY": "k"})]

    assert (first.status, first.body) == (201, b'{"payment": 1}')
    assert "Idempotent-Replayed" not in first.headers
    assert {(retry.status, retry.body, retry.is_replay) for retry in retries} == {
        (201, b'{"payment": 1}', True)
    }
    assert (site.shop.runs, site.payments) == (1, [1])  # H166
    assert site.shop.heard == [b'{"amount": 1}']


async def test_h001_h003_a_request_without_the_required_key_is_refused(open_site: OpenSite) -> None:
    site = await open_site(link="https://shop.example/keys")

    missing, empty = await site.post(key=None), await site.post(key="")

    assert (missing.status, missing.code) == (400, "key_missing")
    assert missing.headers["link"] == '<https://shop.example/keys>; rel="describedby"'
    assert (empty.status, empty.code) == (400, "key_invalid")
    assert (site.shop.runs, site.claims) == (0, [])


async def test_h002_h003_without_an_optional_key_the_handler_just_runs(open_site: OpenSite) -> None:
    site = await open_site(required=False)

    replies = [await site.post(key=None), await site.post(key=None)]

    assert [reply.body for reply in replies] == [b'{"payment": 1}', b'{"payment": 2}']
    assert all("Idempotent-Replayed" not in reply.headers for reply in replies)
    assert (await site.post(key="")).code == "key_invalid"
    assert (site.payments, site.claims) == ([1, 2], [])


async def test_h034_h050_h203_a_key_is_that_of_one_request(open_site: OpenSite) -> None:
    site = await open_site()
    await site.post()

    reply = await site.post(body=b'{"amount": 2}')
    page = await site.post(body=b"other", headers={"Accept": "text/html"})

    assert (reply.status, reply.code) == (422, "key_reused")
    assert b"payment" not in reply.body
    assert page.status == 422
    assert page.headers["content-type"].startswith("text/html")
    assert (await site.post("/other")).code == "key_reused"
    assert site.payments == [1]


async def test_h034_keys_may_be_per_route(open_site: OpenSite) -> None:
    site = await open_site(scope="route")
    await site.post("/pay")

    assert (await site.post("/other")).status == 201
    assert site.payments == [1, 2]


async def test_h030_h031_h032_h033_methods_with_a_policy_and_without(open_site: OpenSite) -> None:
    site = await open_site()
    passed = [
        (await site.post("/pay", method="GET", body=b"")).status,
        (await site.post("/plain", method="PUT")).status,
        (await site.post("/plain", method="DELETE")).status,
    ]
    refused = await site.post("/plain")
    assert (passed, refused.status, refused.code) == ([200, 200, 200], 400, "not_configured")
    assert (site.shop.reads, site.claims) == (3, [])
    assert (await site.post("/plain", key=None)).status == 200

    await site.post(method="PATCH", key="patch")
    assert (await site.post(method="PATCH", key="patch")).is_replay
    site.answers(204)
    replies = [await site.post("/orders/7", method="DELETE", body=b"") for _ in range(2)]
    assert [reply.status for reply in replies] == [204, 204]
    assert [reply.is_replay for reply in replies] == [False, True]
    assert site.shop.runs == 2


async def test_h038_h039_h042_h044_keys_belong_to_a_tenant_and_its_caller(
    open_site: OpenSite,
) -> None:
    site = await open_site()
    stranger = await site.post(user=None)
    assert (stranger.status, site.claims) == (401, [])

    replies = [
        await site.post(),
        await site.post(user=BOB),
        await site.post(headers={"X-Tenant": "other"}),
    ]

    assert [(reply.status, reply.is_replay) for reply in replies] == [(201, False)] * 3
    assert site.payments == [1, 2, 3]
    site.shop.allows = False
    banned = await site.post()
    assert banned.status in {401, 403}
    assert b"payment" not in banned.body


async def test_h110_h115_while_the_first_is_at_work_the_second_is_told_when_to_come_back(
    open_site: OpenSite,
) -> None:
    site = await open_site(patience=SHORT)

    async with site.held() as first:
        second = await site.post()
    answered = await first
    third = await site.post()

    assert (second.status, second.code) == (409, "in_progress")
    assert int(second.headers["retry-after"]) >= 1  # H204
    assert answered.status == 201
    assert third.is_replay
    assert (site.shop.runs, site.payments) == (1, [1])


async def test_h111_or_it_waits_for_the_firsts_answer(open_site: OpenSite) -> None:
    site = await open_site(patience=SHORT, wait=timedelta(seconds=LONG))

    async with site.held():
        second = asyncio.create_task(site.post())
    reply = await second

    assert (reply.status, reply.is_replay) == (201, True)
    assert site.payments == [1]


async def test_h131_h132_a_refusal_is_an_answer_and_later_is_none(open_site: OpenSite) -> None:
    site = await open_site()
    site.answers(402, b"no funds")
    await site.post()
    site.answers(503, b"later", [("Retry-After", "1")])
    later = await site.post(key="later")
    site.succeeds()

    retry, again = await site.post(), await site.post(key="later")

    assert (retry.status, retry.body, retry.is_replay) == (402, b"no funds", True)
    assert (later.status, later.headers["retry-after"]) == (503, "1")
    assert (again.status, again.is_replay) == (201, False)


async def test_h130_h134_what_a_route_calls_harmless_frees_the_key(open_site: OpenSite) -> None:
    site = await open_site(on_4xx="release", retryable=(ConnectionError,))
    site.answers(402, b"no funds")
    await site.post()
    site.raises(ConnectionError("before any effect"))
    await site.post(key="raised")
    site.succeeds()

    assert (await site.post(body=b'{"amount": 2}')).status == 201
    assert (await site.post(key="raised")).status == 201


async def test_h133_h135_h136_a_failure_is_undone_in_a_transaction_and_stored_outside(
    open_site: OpenSite, mode: Mode
) -> None:
    site = await open_site()
    site.answers(500, b"oh")
    answered = await site.post(key="answered")
    site.raises(ValueError("oh"))
    raised = await site.post(key="raised")
    site.succeeds()

    again, retry = await site.post(key="answered"), await site.post(key="raised")

    assert (answered.status, answered.body, raised.status) == (500, b"oh", 500)
    if mode.joined:
        assert [again.status, again.is_replay, retry.status] == [201, False, 201]
        assert site.payments == [3, 4]  # H162
    else:
        assert (again.status, again.body, again.is_replay) == (500, b"oh", True)
        assert (retry.status, retry.code, retry.is_replay) == (500, "attempt_failed", True)
        assert raised.body == retry.body
        assert site.payments == [1, 2]


async def test_h180_h181_h183_after_the_retention_the_key_is_new(
    open_site: OpenSite, clock: Clock
) -> None:
    site = await open_site(retention=timedelta(hours=1))
    await site.post()

    clock.advance(timedelta(minutes=59))
    assert (await site.post()).is_replay
    clock.advance(timedelta(minutes=1))
    again = await site.post()  # H188

    assert (again.status, again.is_replay) == (201, False)
    assert site.payments == [1, 2]


async def test_h076_h077_h078_h081_headers_come_back_but_for_cookies(open_site: OpenSite) -> None:
    site = await open_site()
    cookies = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
    site.answers(201, b"x", [("Location", "/pay/1"), ("ETag", '"1"'), *cookies])

    first, retry = await site.post(), await site.post()

    assert first.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert "set-cookie" not in retry.headers
    assert (retry.headers["location"], retry.headers["etag"]) == ("/pay/1", '"1"')
    assert retry.headers["content-length"] == "1"  # H082
