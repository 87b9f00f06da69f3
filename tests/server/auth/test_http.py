"""Keys through the front door: what a client is told, and in which headers."""

import asyncio
import logging
import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from onefold import Onefold
from tests.fixtures.colours import Clock, Store
from tests.fixtures.served import Api

JOB = {"payload": {"orderId": "9482"}}
JOBS = "/v1/queues/payments/jobs"


def bearer(key: str) -> dict[str, Any]:
    return {"authorization": f"Bearer {key}"}


async def made(api: Api, *scopes: Any, **options: Any) -> str:
    return (await api.onefold.api_keys.acreate("acme", scopes=scopes, **options)).text


@pytest.fixture
def api(store: Store, clock: Clock) -> Api:
    return Api(store.open(clock=clock), anonymous=False, access_log=True)


async def test_who_has_no_key_is_told_what_to_send(api: Api) -> None:
    refused = await api("POST", JOBS, JOB)

    assert refused.problem(401, "unauthenticated")["error"] == refused.json["detail"]
    assert refused.headers["www-authenticate"] == 'Bearer realm="onefold"'
    assert "Authorization: Bearer" in refused.json["detail"]
    # A body is not read from who is not let in.
    assert (await api("POST", JOBS, raw=b"{" * 10_000_000)).status == 401


@pytest.mark.parametrize(
    "url",
    ["postgresql://ada:secret@127.0.0.3:1/ledger", "sqlite:////no-such-folder/ledger.db"],
    ids=["postgres", "sqlite"],
)
async def test_only_the_log_says_where_a_database_is_that_is_away(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Onefold(url) as away:
        api = Api(away)
        replies = [await api("GET", path) for path in ("/readyz", "/jobs")]

    assert [reply.status for reply in replies] == [503] * 2
    assert replies[0].json["status"] == "unavailable"
    assert not re.findall(
        rb"ada|127\.0\.0\.3|ledger|no-such-folder", b"".join(r.body for r in replies)
    )
    assert "ledger: " in caplog.text or "ledger.db: " in caplog.text


async def test_a_key_that_may_read_sees_everything_but_secrets_and_changes_nothing(
    api: Api,
) -> None:
    admin, reader = await made(api, "admin"), await made(api, "read")
    settings = {"endpoint": "https://shop.example/jobs"}
    assert (await api("PUT", "/v1/queues/payments", settings, **bearer(admin))).status == 201
    job = (await api("POST", JOBS, JOB, **bearer(admin))).json["id"]

    seen = [
        await api("GET", path, **bearer(reader))
        for path in ("/v1/jobs", f"/v1/jobs/{job}", "/v1/queues", "/v1/queues/payments")
    ]
    refused = [
        await api("GET", "/v1/queues/payments/secret", **bearer(reader)),
        await api("POST", JOBS, JOB, **bearer(reader)),
        await api("POST", f"/v1/jobs/{job}/cancel", {}, **bearer(reader)),
        await api("PUT", "/v1/queues/payments", {}, **bearer(reader)),
        await api("DELETE", "/v1/queues/payments", **bearer(reader)),
    ]

    assert [reply.status for reply in seen] == [200] * 4
    assert not [reply for reply in seen if b"whsec_" in reply.body]
    assert [reply.problem(403, "forbidden")["scope"] for reply in refused] == [
        "admin", "publish", "publish", "admin", "admin"
    ]  # fmt: skip
    assert [found["state"] for found in seen[0].json["items"]] == ["ready"]


KEYED = {**JOB, "idempotencyKey": "order:9482"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (JOBS, JOB),
        (JOBS, KEYED),
        (JOBS, {**KEYED, "idempotencyKey": "order:9483"}),
        (JOBS, {**KEYED, "uniqueKey": "9482"}),
        (JOBS, {**KEYED, "onDuplicate": "raise"}),
        (JOBS, {"delay": "never"}),
        ("/v1/queues/none/jobs", KEYED),
    ],
    ids=["plain", "known", "new", "unique", "raise", "invalid", "no queue"],
)
async def test_a_key_that_has_published_before_is_rejected_as_soon_as_it_is_revoked(
    api: Api, store: Store, clock: Clock, path: str, body: dict[str, Any]
) -> None:
    """Whatever the request is, and although another process has revoked it."""
    admin, key = await made(api, "admin"), await made(api, "publish")
    await api("PUT", "/v1/queues/payments", {}, **bearer(admin))
    statuses = [(await api("POST", JOBS, KEYED, **bearer(key))).status for _ in range(3)]
    async with store.open(clock=clock) as elsewhere:
        await elsewhere.api_keys.arevoke(key)

    refused = await api("POST", path, body, **bearer(key))
    jobs = await api("GET", "/v1/jobs", **bearer(admin))

    assert statuses == [201, 200, 200]
    refused.problem(401, "unauthenticated")
    assert len(jobs.json["items"]) == 1


async def test_of_publishes_that_share_a_commit_only_those_of_a_revoked_key_are_rejected(
    api: Api, store: Store, clock: Clock
) -> None:
    keys = [await made(api, "admin", "publish") for _ in range(2)]
    await api("PUT", "/v1/queues/payments", {}, **bearer(keys[0]))

    async def publish(round_: int) -> list[int]:
        bodies = [{**JOB, "idempotencyKey": f"{round_}:{number}"} for number in range(8)]
        replies = await asyncio.gather(
            *[api("POST", JOBS, body, **bearer(keys[i % 2])) for i, body in enumerate(bodies)]
        )
        return [reply.status for reply in replies]

    before = [*await publish(1), *await publish(2)]
    async with store.open(clock=clock) as elsewhere:
        await elsewhere.api_keys.arevoke(keys[1])
    after = await publish(3)
    jobs = await api("GET", "/v1/jobs", **bearer(keys[0]))

    assert before == [201] * 16
    assert after == [201, 401] * 4
    assert len(jobs.json["items"]) == 20


async def test_a_key_that_has_published_before_is_rejected_when_it_expires(
    api: Api, clock: Clock
) -> None:
    admin, key = await made(api, "admin"), await made(api, "publish", expires_in=timedelta(hours=1))
    await api("PUT", "/v1/queues/payments", {}, **bearer(admin))
    published = [(await api("POST", JOBS, KEYED, **bearer(key))).status for _ in range(2)]
    clock.advance(timedelta(hours=1))

    refused = await api("POST", JOBS, {**JOB, "idempotencyKey": "later"}, **bearer(key))

    assert published == [201, 200]
    refused.problem(401, "unauthenticated")


async def test_a_used_up_key_is_told_when_to_come_back(api: Api) -> None:
    key = await made(api, "publish", rate="1/m")

    replies = [await api("GET", "/v1/jobs", **bearer(key)) for _ in range(2)]

    assert replies[0].status == 200
    replies[1].problem(429, "rate_limited")
    assert replies[1].headers["retry-after"] == "60"


async def test_no_key_is_ever_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys = [await made(api, "admin"), await made(api, "publish", rate="1/h")]

    for key in (*keys, *keys):
        for path in ("/v1/jobs", "/v1/queues/none", "/v1/nowhere"):
            await api("GET", path, **bearer(key))
            await api("GET", path, **bearer(key + "x"))

    logged = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "/v1/jobs" in logged
    for key in keys:
        assert key.rpartition("_")[2] not in logged


@pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
async def test_a_look_at_a_key_that_takes_too_long_is_not_blamed_on_the_client(
    store: Store,
) -> None:
    """Its body may have come in time: 503, and to be sent again."""
    soon = timedelta(milliseconds=1)
    api = Api(store.open(), anonymous=False, body_timeout=soon, request_timeout=soon)
    key = await made(api, "publish")
    with psycopg.connect(store.url) as other:
        other.execute(f"lock table {store.schema}.api_key in access exclusive mode".encode())
        told = await api("POST", JOBS, JOB, **bearer(key))

    told.problem(503, "took_too_long")
    assert told.headers["retry-after"] == "1"
